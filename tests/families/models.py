"""Saved random models of the families, and transformers' answers in fp32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.families.cases import Case

F32 = npt.NDArray[np.float32]


def save(case: Case, folder: Path, seed: int = 0) -> Any:
    """Save a random model of the case and return it: bf16 weights, fp32 norms and biases.

    The weights are large enough for attention to be far from uniform.
    """
    import torch
    import transformers

    torch.set_num_threads(1)  # two workers share few cores
    torch.manual_seed(seed)
    config = transformers_config(case)
    config._attn_implementation = "eager"
    model = getattr(transformers, case.class_name)(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            randomise(name, value)
    model.save_pretrained(folder)
    return model


def transformers_config(case: Case) -> Any:
    """transformers' config of the case. Skips the test where the installed transformers is older than the family."""
    import transformers

    if not hasattr(transformers, case.class_name):
        pytest.skip(f"transformers {transformers.__version__} has no {case.class_name}")
    return getattr(transformers, case.config_name)(**case.config())


def randomise(name: str, value: Any) -> None:
    """Change a parameter in place, under no_grad."""
    if "norm" in name:
        value.add_(value.clone().uniform_(-0.5, 0.5))
    elif name.endswith("bias"):
        value.normal_(0, 0.3)
    else:
        value.normal_(0, 0.8 * value.shape[1] ** -0.5)
        value.copy_(value.bfloat16().float())


def reference(model: Any, ids: list[int]) -> F32:
    """float32 [len(ids), vocab]."""
    import torch

    with torch.no_grad():
        model(torch.tensor([ids[:1]]), use_cache=False)  # dynamic RoPE keeps the longest length; a short one resets it
        logits: F32 = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    return logits


def greedy(model: Any, ids: list[int], count: int) -> tuple[list[int], F32]:
    """(the next `count` tokens, the logits that they were chosen from)."""
    import torch

    given = torch.tensor([ids])
    answer = model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=count, do_sample=False, output_logits=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    return answer.sequences[0, len(ids) :].tolist(), torch.cat(answer.logits).numpy()


def config_of(folder: Path) -> dict[str, Any]:
    """The saved config.json."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config
