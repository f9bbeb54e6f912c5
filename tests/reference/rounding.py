"""Whether cached K/V rows are the rounding of a model's own.

A rounded cache cannot be compared by the logits that follow from another rounded cache: where a value is next to a tie,
a difference of 1e-6 rounds it the other way, one unit of its type off, the layers above see that, and by the last
layer a fifth of the row has been rounded otherwise. So a step is compared in two parts, layer by layer on amk's own
rows: what the model computes is amk's row before rounding, and the logits follow from the rows that amk cached.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from amk.model.bf16 import from_bf16, to_bf16

F32 = npt.NDArray[np.float32]


def rounding_error(cached: F32, exact: F32, kv_dtype: str) -> float:
    """The smallest error of `exact` [..., head_dim] for which `cached` is its rounding to nearest.

    Relative to the largest element of the head's row; the worst of all elements. NaN where a row is not finite.
    """
    low, high = rounded_from(np.abs(cached), kv_dtype)
    turned = np.where(np.signbit(cached) & (cached != 0), -exact, exact)
    turned = np.where(cached == 0, np.abs(exact), turned)
    off = np.maximum(np.maximum(low - turned, turned - high), 0)
    return float((off / np.abs(exact).max(-1, keepdims=True)).max())


def rounded_from(size: F32, kv_dtype: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The interval of values that round to `size`, values of the type and not below 0; fp32 stands for itself."""
    exact = size.astype(np.float64)
    if kv_dtype == "fp32":
        return exact, exact
    bits = to_bf16(size) if kv_dtype == "bf16" else size.astype(np.float16).view(np.uint16)
    assert np.array_equal(_value(bits, kv_dtype), exact, equal_nan=True), f"not values of {kv_dtype}"
    above, below = _value(bits + np.uint16(1), kv_dtype), _value(np.maximum(bits, 1) - np.uint16(1), kv_dtype)
    with np.errstate(invalid="ignore"):  # the neighbour of the largest value is infinite
        return np.where(bits == 0, -above, (exact + below) / 2), (exact + above) / 2


def _value(bits: npt.NDArray[np.uint16], kv_dtype: str) -> npt.NDArray[np.float64]:
    values: npt.NDArray[Any] = from_bf16(bits) if kv_dtype == "bf16" else bits.view(np.float16)
    return values.astype(np.float64)
