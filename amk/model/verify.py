"""Whether a checkpoint holds exactly the tensors that a graph reads, before any of them is used."""

from __future__ import annotations

import re

import numpy as np

from amk.errors import UnsupportedModelError
from amk.model.checkpoint import Checkpoint, NamedCheckpoint
from amk.model.graph import ModelGraph
from amk.model.walker import EMBED, HEAD

# Buffers that old versions of transformers saved; recomputed from the config.
_HARMLESS = re.compile(r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")


def verify_checkpoint(graph: ModelGraph, checkpoint: NamedCheckpoint) -> None:
    """Raises UnsupportedModelError naming a missing, misshapen or unexpected tensor."""
    for ref in graph.tensors():
        shape = checkpoint.shape(ref.name)
        if shape != ref.shape:
            raise UnsupportedModelError(
                f"tensor {ref.name} has shape {list(shape)}, config.json asks for {list(ref.shape)}; "
                "the config and the weights are of different models"
            )
    expected = {ref.name for ref in graph.tensors()}
    for name in checkpoint.names():
        if name in expected or _HARMLESS.fullmatch(name):
            continue
        if name == HEAD:
            _check_stored_head(checkpoint)
        else:
            raise UnsupportedModelError(
                f"the checkpoint has a tensor {name}, which the config gives no use for, so the model computes more "
                f"than {graph.architecture} as configured; use a config that matches the weights"
            )


def _check_stored_head(checkpoint: Checkpoint) -> None:
    """A tied head may be stored as well, as long as it is the same matrix."""
    if not np.array_equal(checkpoint.bf16(HEAD), checkpoint.bf16(EMBED)):
        raise UnsupportedModelError(
            f"config.json: tie_word_embeddings = True, but the checkpoint's {HEAD} differs from {EMBED}; "
            "set tie_word_embeddings to false to use the stored head"
        )
