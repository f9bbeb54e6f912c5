"""bfloat16 as bit patterns: NumPy has no such type, so a bf16 array is uint16 here."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_BLOCK = 1 << 20  # elements converted at a time; bounds the temporaries to a few MB


def to_bf16(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Bit patterns of float `values`, rounded to nearest even, in their shape; row-major.

    A NaN stays a NaN of its sign. fp64 is rounded to fp32 first, as torch does.
    """
    out = np.empty(values.shape, np.uint16)
    source, target = np.ascontiguousarray(values).reshape(-1), out.reshape(-1)
    for start in range(0, source.size, _BLOCK):
        target[start : start + _BLOCK] = _round_block(source[start : start + _BLOCK])
    return out


def _round_block(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    with np.errstate(over="ignore"):  # fp64 beyond fp32 becomes inf, which is its rounding
        single = values.astype(np.float32)
    bits = single.view(np.uint32)
    # Half of the lowest kept bit, less one if that bit is even: the carry then rounds ties to even.
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)  # adding to a NaN could carry it into an infinity
    return np.asarray(np.where(np.isnan(single), quiet, rounded), np.uint16)


def from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The exact fp32 values of bf16 bit patterns, in their shape."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)
