"""The K/V cache as it lies in GPU memory: blocks of 16 positions in the fragment order of kernels/kv_types.cuh."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from amk.model.bf16 import from_bf16
from amk.runtime.cuda.driver import to_host
from schedule_ir.layout import KV_BLOCK, kv_block_bytes
from schedule_ir.program import Program

F32 = npt.NDArray[np.float32]

KEY_SIZES = (2, 8, 0, 2, 4, 2)
"""A block of K [16 positions, dims] as axes: position = (half, row), dim = (step, half, pair, element). 0: steps."""
KEY_ORDER = (2, 1, 4, 0, 3, 5)
"""The order in which these axes are stored: a thread's registers and their halves last."""
VALUE_SIZES = (2, 4, 2, 0, 2, 8)
"""A block of V likewise: position = (half, pair, element), dim = (step, half, row)."""
VALUE_ORDER = (3, 5, 1, 4, 0, 2)

THREADS = 32


def read_kv(program: Program, address: int, begin: int, end: int) -> F32:
    """float32 [2, layers, kv_heads, end - begin, head_dim], K and V of positions; needs a current context."""
    c = program.config
    size, each = kv_block_bytes(c), c["max_seq_padded"] // KV_BLOCK
    first, last = begin // KV_BLOCK, -(-end // KV_BLOCK)
    heads = []
    for head in range(c["layers"] * c["kv_heads"]):
        blocks = np.empty((last - first, size), np.uint8)
        to_host(blocks, address + (head * each + first) * size)
        heads.append(unpack_kv(blocks, program.kv_dtype)[:, begin - first * KV_BLOCK :])
    rows = np.stack(heads, 1)[:, :, : end - begin, : c["head_dim"]]
    return rows.reshape(2, c["layers"], c["kv_heads"], end - begin, c["head_dim"])


def unpack_kv(blocks: npt.NDArray[np.uint8], kv_dtype: str) -> F32:
    """float32 [2, 16 * blocks, head_dim_padded], K and V, of the bytes uint8 [blocks, block bytes] of one head."""
    count = len(blocks)
    halves = _elements(blocks, kv_dtype).reshape(count, 2, -1)
    if kv_dtype == "fp32":  # two 16-byte planes per thread
        halves = halves.reshape(count, 2, -1, 2, THREADS, 4).swapaxes(3, 4).reshape(count, 2, -1)
    keys = _rows(halves[:, 0], KEY_SIZES, KEY_ORDER)
    return np.stack([keys, _rows(halves[:, 1], VALUE_SIZES, VALUE_ORDER)])


def _elements(raw: npt.NDArray[np.uint8], kv_dtype: str) -> F32:
    if kv_dtype == "bf16":
        return from_bf16(raw.view(np.uint16))
    values: npt.NDArray[Any] = raw.view(np.float16 if kv_dtype == "fp16" else np.float32)
    return values.astype(np.float32)


def _rows(stored: F32, sizes: tuple[int, ...], order: tuple[int, ...]) -> F32:
    """float32 [blocks * 16, dims] of elements [blocks, 16 * dims] in stored order."""
    dims = stored.shape[1] // KV_BLOCK
    whole = [size or dims // KV_BLOCK for size in sizes]
    axes = stored.reshape(-1, *(whole[axis] for axis in order))
    return axes.transpose(0, *(1 + order.index(axis) for axis in range(len(order)))).reshape(-1, dims)
