"""The read ceiling: the fastest that all SMs copy contiguous streams into shared memory, doing nothing else."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from amk.bench.fill import fill_random
from amk.bench.gpu import BenchGpu
from amk.runtime.cuda.driver import call, driver

BARRIER_BYTES = 512
"""kBarrierBytes of kernels/ceiling.cu."""

STREAM_BYTES = 30 << 20
"""Of one SM: the streams of all SMs are many times the L2."""

ROUNDS = 2
LAUNCHES = 5
CANDIDATES = tuple((chunk << 10, slots) for chunk in (8, 16, 32) for slots in (2, 3, 4, 6, 12, 24))


@dataclass(frozen=True)
class Setting:
    """Bytes per second with `slots` copies of `chunk_bytes` in flight on every SM, median of some launches."""

    chunk_bytes: int
    slots: int
    bytes_per_second: float


@dataclass(frozen=True)
class Ceiling:
    """What was tried; the fastest of it is the ceiling."""

    stream_bytes: int
    settings: tuple[Setting, ...]

    @property
    def best(self) -> Setting:
        """The fastest setting."""
        return max(self.settings, key=lambda setting: setting.bytes_per_second)


def candidates(shared_bytes: int) -> list[tuple[int, int]]:
    """(chunk bytes, slots) that fit an SM's shared memory."""
    return [(chunk, slots) for chunk, slots in CANDIDATES if BARRIER_BYTES + chunk * slots <= shared_bytes]


def stream_size(free_bytes: int, sms: int) -> int:
    """Bytes of one SM's stream: STREAM_BYTES, or what half of the free memory allows, in whole MiB."""
    return max(1 << 20, min(STREAM_BYTES, free_bytes // 2 // sms >> 20 << 20))


def measure_ceiling(gpu: BenchGpu, settings: Sequence[tuple[int, int]] | None = None) -> Ceiling:
    """Measure the read ceiling of the GPU, by default over all settings that fit. Raises DeviceError."""
    free, _ = call(driver().cuMemGetInfo)
    stream = stream_size(free, gpu.device.sms)
    address = gpu.memory.allocate(stream * gpu.device.sms)
    try:
        fill_random(gpu, address, stream * gpu.device.sms, "fp16")
        tried = settings or candidates(gpu.device.smem_per_block_bytes)
        return Ceiling(stream, tuple(_measure(gpu, address, stream, chunk, slots) for chunk, slots in tried))
    finally:
        gpu.memory.free(address)


def _measure(gpu: BenchGpu, address: int, stream: int, chunk: int, slots: int) -> Setting:
    """All of the shared memory is claimed, so that no two CTAs share an SM."""
    shared = gpu.device.smem_per_block_bytes
    function = gpu.function("amk_ceiling", shared)
    arguments = [
        (address, ctypes.c_uint64), (stream, ctypes.c_uint64), (chunk, ctypes.c_int32), (slots, ctypes.c_int32),
        (ROUNDS, ctypes.c_int32),
    ]  # fmt: skip
    times = [gpu.time_ms(function, gpu.device.sms, 32, shared, arguments) for _ in range(LAUNCHES + 1)]
    seconds = statistics.median(times[1:]) / 1e3
    return Setting(chunk, slots, stream * gpu.device.sms * ROUNDS / seconds)
