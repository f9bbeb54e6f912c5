"""Random values in device memory: a cache of zeros would make attention, and the power drawn, unreal."""

from __future__ import annotations

import ctypes
import math

from amk.bench.gpu import BenchGpu
from amk.runtime.cuda.machine import CudaMachine

KINDS = {"fp16": 0, "bf16": 1, "fp32": 2}
ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
_KEY = 0x5EED


def fill_random(gpu: BenchGpu, address: int, size_bytes: int, dtype: str) -> None:
    """Fill device memory with values of unit variance and mean zero in `dtype`."""
    arguments = [
        (address, ctypes.c_uint64), (size_bytes // (2 * ELEMENT_BYTES[dtype]), ctypes.c_uint64),
        (_KEY, ctypes.c_uint32), (KINDS[dtype], ctypes.c_int32),
    ]  # fmt: skip
    gpu.time_ms(gpu.function("amk_fill"), 8 * gpu.device.sms, 256, 0, arguments)


def fill_cache(gpu: BenchGpu, machine: CudaMachine) -> None:
    """Random K/V at every position. The values are independent, so their order in the cache does not matter."""
    buffer = machine.program.buffer("kv")
    fill_random(gpu, machine.kv_address, math.prod((buffer.size, buffer.element_bytes)), machine.program.kv_dtype)
