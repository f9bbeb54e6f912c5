"""The K/V cache of the CPU runtime: rows rounded to the K/V dtype, kept as fp32 to compute with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from amk.errors import DeviceError
from amk.model.bf16 import from_bf16, to_bf16
from schedule_ir.ops.attention import append_meaning

F32 = npt.NDArray[np.float32]


class KvCache:
    """float32 [layers * kv_heads, max_seq_padded, head_dim] of K (after RoPE) and of V."""

    def __init__(self, config: Mapping[str, int], kv_dtype: str) -> None:
        shape = config["layers"] * config["kv_heads"], config["max_seq_padded"], config["head_dim"]
        self.keys, self.values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self._kv_heads, self._kv_dtype = config["kv_heads"], kv_dtype

    def append(self, rows: npt.NDArray[np.intp] | slice, pos: int, keys: F32, values: F32) -> None:
        """Store the new rows [n, head_dim] of position `pos`. Raises DeviceError if one does not fit the dtype."""
        for name, cache, new in (("K", self.keys, keys), ("V", self.values, values)):
            rounded = round_kv(new, self._kv_dtype)
            if not np.isfinite(rounded).all():
                raise DeviceError(self._overflow(name, rows, pos, new, rounded))
            append_meaning(cache, rows, pos, rounded)

    def rows(self, begin: int, end: int) -> F32:
        """float32 [2, layers, kv_heads, end - begin, head_dim]: K and V of positions, a copy."""
        cached = np.stack([self.keys[:, begin:end], self.values[:, begin:end]])
        return cached.reshape(2, -1, self._kv_heads, *cached.shape[2:])

    def _overflow(self, name: str, rows: npt.NDArray[np.intp] | slice, pos: int, new: F32, rounded: F32) -> str:
        first = int((~np.isfinite(rounded)).any(-1).argmax())
        layer = int(np.arange(len(self.keys))[rows][first]) // self._kv_heads
        value = new[~np.isfinite(rounded)][0]
        if not np.isfinite(value):
            return f"{name} of layer {layer} at position {pos} is {value}; the model's numbers overflow in fp32"
        wider = "bf16 or --kv-dtype fp32" if self._kv_dtype == "fp16" else "fp32"
        return (
            f"{name} of layer {layer} at position {pos} is {value:.6g}, too large for {self._kv_dtype} K/V; "
            f"build again with --kv-dtype {wider}"
        )


def round_kv(values: F32, kv_dtype: str) -> F32:
    """fp32 values rounded to the K/V dtype; too large ones become infinite."""
    if kv_dtype == "fp32":
        return values
    if kv_dtype == "bf16":
        return from_bf16(to_bf16(values))
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)
