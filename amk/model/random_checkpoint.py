"""A checkpoint with no files: seeded random weights in the shapes of a graph (see random_weights)."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from amk.errors import UnsupportedModelError
from amk.model.graph import ModelGraph, TensorRef
from amk.model.random_weights import random_bf16, random_fp32

_RECIPE = 1  # raise when random_weights changes what a seed means


class RandomCheckpoint:
    """A `Checkpoint` that makes each tensor when asked. Norms are fp32, all else bf16."""

    kind = "random"

    def __init__(self, graph: ModelGraph, seed: int) -> None:
        self.seed = seed
        self._refs: dict[str, TensorRef] = {ref.name: ref for ref in graph.tensors()}

    @property
    def digest(self) -> str:
        """sha256 (hex) of the recipe, the seed and every tensor's name and shape."""
        lines = [f"amk-random {_RECIPE} {self.seed}", *sorted(f"{ref.name} {ref.shape}" for ref in self._refs.values())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def names(self) -> list[str]:
        """Every tensor of the graph."""
        return list(self._refs)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor. Raises UnsupportedModelError if the graph has none of that name."""
        return self._ref(name).shape

    def bf16(self, name: str) -> npt.NDArray[np.uint16]:
        """bf16 bit patterns, row-major."""
        return random_bf16(self.seed, self._ref(name))

    def fp32(self, name: str) -> npt.NDArray[np.float32]:
        """A norm or a bias, exactly."""
        return random_fp32(self.seed, self._ref(name))

    def _ref(self, name: str) -> TensorRef:
        if name not in self._refs:
            raise UnsupportedModelError(f"tensor {name} is not one of this model's; random weights have no other")
        return self._refs[name]
