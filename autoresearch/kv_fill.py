"""Random values in the K/V cache of a CUDA machine, the same ones for every machine."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.model.bf16 import to_bf16
from amk.runtime.cuda.driver import to_device
from amk.runtime.machine import Machine

SEED = 0x5EED
BLOCK_BYTES = 8 << 20
"""Repeated to fill the cache."""


@cache
def random_values(kv_dtype: str, size: int) -> npt.NDArray[Any]:
    """`size` values of unit variance and mean zero, as the K/V cache stores them. Kept: every load asks for them."""
    values = np.random.default_rng(SEED).standard_normal(size, np.float32)
    if kv_dtype == "bf16":
        return to_bf16(values)
    return values.astype(np.float16) if kv_dtype == "fp16" else values


def fill_kv(machine: Machine) -> None:
    """Fill the cache. Values are independent, so their order in the cache does not matter."""
    from amk.runtime.cuda import CudaMachine

    assert isinstance(machine, CudaMachine)
    buffer = machine.program.buffer("kv")
    block = random_values(machine.program.kv_dtype, min(buffer.size, BLOCK_BYTES // buffer.element_bytes))
    for begin in range(0, buffer.size, len(block)):
        part = block[: buffer.size - begin]
        to_device(machine.kv_address + begin * buffer.element_bytes, part)
