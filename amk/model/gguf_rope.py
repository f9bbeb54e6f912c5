"""llama3 rope scaling from a GGUF file: llama.cpp bakes it into a tensor of divisors, one per frequency.

The divisor of a frequency with wavelength w is 1 below L / high, `factor` above L / low, and in between
1 / ((1 - s) / factor + s) with s = (L / w - low) / (high - low). Only the ratios of L, low and high show in it, so low
is taken as 1 (as published) and the rest solved for; the result must reproduce the tensor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import UnsupportedModelError

F64 = npt.NDArray[np.float64]

_TOLERANCE = 1e-4  # relative; the tensor is fp32 and its maker may have worked in fp32
_PUBLISHED = (8192, 4.0)  # Llama 3.1 to 3.3: original length and high_freq_factor


def rope_scaling_from_divisors(divisors: npt.NDArray[np.float32], theta: float) -> dict[str, Any] | None:
    """The `rope_scaling` dictionary that gives these divisors ([dim/2]), or None where they are all 1.

    Raises UnsupportedModelError if no llama3 parameters do.
    """
    values = divisors.astype(np.float64)
    if np.allclose(values, 1.0, rtol=_TOLERANCE):
        return None
    wavelength = 2 * math.pi * theta ** (np.arange(values.size) / values.size)
    factor = float(np.float32(values.max()))
    for length, high in (_PUBLISHED, _solve(values, wavelength, factor)):
        if np.allclose(_divisors(wavelength, factor, length, high), values, rtol=_TOLERANCE):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": 1.0,
                "high_freq_factor": high,
                "original_max_position_embeddings": length,
            }
    raise UnsupportedModelError(
        f"rope_freqs.weight holds divisors {np.array2string(divisors, precision=4, threshold=6)} that no llama3 "
        "scaling produces; use the safetensors checkpoint"
    )


def _solve(divisors: F64, wavelength: F64, factor: float) -> tuple[int, float]:
    """(L, high) for low = 1 from the interpolated divisors, where 1/divisor is a line in 1/wavelength.

    Falls back to the published values where fewer than two are interpolated and the line is not determined.
    """
    between = (divisors > 1 + _TOLERANCE) & (divisors < factor * (1 - _TOLERANCE))
    if between.sum() < 2 or factor <= 1:
        return _PUBLISHED
    smooth = (1 / divisors[between] - 1 / factor) / (1 - 1 / factor)
    slope, intercept = np.polyfit(1 / wavelength[between], smooth, 1)
    if intercept >= 0 or slope <= 0:
        return _PUBLISHED
    high = 1 - 1 / intercept
    return round(slope * (high - 1)), round(float(high), 3)


def _divisors(wavelength: F64, factor: float, length: int, high: float) -> F64:
    """The divisors that llama3 scaling with low = 1 gives."""
    smooth = np.clip((length / wavelength - 1) / (high - 1), 0, 1)
    return np.asarray(1 / ((1 - smooth) / factor + smooth))
