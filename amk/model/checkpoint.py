"""Where weights come from: one interface over safetensors, GGUF and seeded random weights."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt


class Checkpoint(Protocol):
    """Read access to the tensors of a model, by Hugging Face name.

    Implementations keep weights on disk (memory-mapped) and convert one tensor at a time.
    """

    @property
    def kind(self) -> str:
        """One of "safetensors", "gguf" and "random"."""

    @property
    def digest(self) -> str:
        """sha256 (hex) that identifies the content; equal digests mean equal weights."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor. Raises UnsupportedModelError if the checkpoint lacks it."""

    def bf16(self, name: str) -> npt.NDArray[np.uint16]:
        """A tensor as bfloat16 bit patterns, row-major, in its own shape (other dtypes round to nearest even)."""

    def fp32(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor (a norm weight or a bias) as fp32, exactly as stored."""


class NamedCheckpoint(Checkpoint, Protocol):
    """A checkpoint that can list its tensors."""

    def names(self) -> list[str]:
        """Every tensor of the checkpoint, used or not."""
        ...
