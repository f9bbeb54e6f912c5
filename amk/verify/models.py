"""Checkpoints made for the gates: one with poisoned tensors, one of small integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.model.bf16 import to_bf16
from amk.model.checkpoint import Checkpoint
from amk.model.graph import ModelGraph, TensorRef
from amk.model.random_checkpoint import RandomCheckpoint
from amk.model.source import Model

F32 = npt.NDArray[np.float32]
Change = Callable[[F32], None]


class _Changed:
    """A checkpoint with some norms or biases changed in place after reading."""

    def __init__(self, inner: Checkpoint, changes: Mapping[str, Change]) -> None:
        self._inner, self._changes = inner, changes
        self.kind, self.digest = inner.kind, inner.digest

    def shape(self, name: str) -> tuple[int, ...]:
        """As the checkpoint's."""
        return self._inner.shape(name)

    def bf16(self, name: str) -> npt.NDArray[np.uint16]:
        """As the checkpoint's."""
        return self._inner.bf16(name)

    def fp32(self, name: str) -> F32:
        """The changed tensor."""
        return _apply(self._inner.fp32(name), self._changes.get(name))


class _ChangedRandom(RandomCheckpoint):
    """The same of a random checkpoint, whose matrices the GPU goes on making itself."""

    def __init__(self, graph: ModelGraph, seed: int, changes: Mapping[str, Change]) -> None:
        super().__init__(graph, seed)
        self._changes = changes

    def fp32(self, name: str) -> F32:
        """The changed tensor."""
        return _apply(super().fp32(name), self._changes.get(name))


def _apply(values: F32, change: Change | None) -> F32:
    if change is None:
        return values
    copy = np.array(values, np.float32)
    change(copy)
    return copy


def changed(model: Model, changes: Mapping[str, Change]) -> Model:
    """The model with these norms or biases changed."""
    if isinstance(model.checkpoint, RandomCheckpoint):
        return replace(model, checkpoint=_ChangedRandom(model.graph, model.checkpoint.seed, changes))
    return replace(model, checkpoint=_Changed(model.checkpoint, changes))


class IntegerCheckpoint:
    """Weights of -1, 0 and 1, sparse enough that every product and sum is exact in the kernel's arithmetic.

    Norms are 1, biases 0. Keys are 0 and values are 0 after the first layer, so that no K/V is near the middle between
    two fp16 or bf16 numbers. What is left of rounding is RMSNorm's scale, softmax and SiLU.
    """

    kind = "integer"

    def __init__(self, graph: ModelGraph) -> None:
        self._refs = {ref.name: ref for ref in graph.tensors()}
        self._zero = {layer.k.weight.name for layer in graph.layers}
        self._zero |= {layer.v.weight.name for layer in graph.layers[1:]}
        self.digest = "integer"

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self._refs[name].shape

    def bf16(self, name: str) -> npt.NDArray[np.uint16]:
        """The matrix; the embedding has no zeros."""
        ref = self._refs[name]
        if len(ref.shape) == 1:
            return to_bf16(self.fp32(name))
        if name in self._zero:
            return np.zeros(ref.shape, np.uint16)
        return _pattern(ref, dense="embed" in name)

    def fp32(self, name: str) -> F32:
        """Ones for a norm, zeros for a bias."""
        return np.full(self._refs[name].shape, 0.0 if name.endswith(".bias") else 1.0, np.float32)


_ONE = 0x3F80
_MINUS_ONE = 0xBF80
_PRIME = 8191


def _pattern(ref: TensorRef, dense: bool) -> npt.NDArray[np.uint16]:
    """Rows are windows into one fixed sequence of prime length, each starting elsewhere."""
    rows, columns = ref.shape
    rng = np.random.default_rng(sum(ref.name.encode()))
    density = 1.0 if dense else min(1.0, 16 / columns)
    signs = np.where(rng.random(_PRIME) < 0.5, _ONE, _MINUS_ONE)
    sequence = np.where(rng.random(_PRIME) < density, signs, 0).astype(np.uint16)
    wrapped = np.concatenate([sequence] * (2 + columns // _PRIME))
    starts = (np.arange(rows) * 4099) % _PRIME
    windows: Any = np.lib.stride_tricks.sliding_window_view(wrapped, columns)
    result: npt.NDArray[np.uint16] = np.ascontiguousarray(windows[starts])
    return result


def integer_model(model: Model) -> Model:
    """The model with integer weights."""
    return replace(model, checkpoint=IntegerCheckpoint(model.graph))
