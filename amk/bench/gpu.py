"""The GPU as the benchmark uses it: bench kernels compiled for it, memory, and launches timed by events."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from amk.device import Device, first_device
from amk.emit.compile import kernel_folder
from amk.errors import DeviceError
from amk.gpus import from_device
from amk.runtime.cuda.driver import Argument, Memory, call, driver, pack_arguments

COPY_ENGINES = {"sm80": "copy_async.cuh", "sm90": "copy_bulk.cuh", "sm120": "copy_bulk.cuh"}


def bench_source(path: str) -> str:
    """The source of the bench kernels for a code path ("sm80", "sm90", "sm120")."""
    return f'#include "{COPY_ENGINES[path]}"\n#include "ceiling.cu"\n'


def compile_bench(path: str, nvrtc_arch: str) -> bytes:
    """The bench kernels as a cubin. Raises DeviceError as `compile_source` does."""
    return compile_source(bench_source(path), nvrtc_arch)


def compile_source(source: str, nvrtc_arch: str) -> bytes:
    """A cubin. Raises DeviceError with the compiler's log if NVRTC refuses the source."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"bench.cu", 0, [], [])
    options = ("--std=c++17", "-default-device", f"--gpu-architecture={nvrtc_arch}", f"-I{kernel_folder()}")
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if int(status) != 0:
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        raise DeviceError(f"NVRTC refused the bench kernels for {nvrtc_arch}: {log.decode(errors='replace')}")
    cubin = bytearray(nvrtc.nvrtcGetCUBINSize(program)[1])
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(program)
    return bytes(cubin)


class BenchGpu:
    """The first GPU with the bench kernels loaded; leaving the context frees its memory."""

    def __init__(self) -> None:
        self.device: Device = first_device()
        target = from_device(self.device).as_target()
        cubin = compile_bench(target.path, target.nvrtc_arch)
        cuda = driver()
        self._handle = call(cuda.cuDeviceGet, self.device.index)
        self.context = call(cuda.cuDevicePrimaryCtxRetain, self._handle)
        call(cuda.cuCtxSetCurrent, self.context)
        self.memory = Memory()
        self._module = call(cuda.cuModuleLoadData, cubin)
        self._events = [call(cuda.cuEventCreate, 0) for _ in range(2)]

    def __enter__(self) -> BenchGpu:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        driver().cuCtxSetCurrent(self.context)
        self.memory.close()
        driver().cuModuleUnload(self._module)
        driver().cuDevicePrimaryCtxRelease(self._handle)

    def function(self, name: str, shared_bytes: int = 0) -> Any:
        """A bench kernel by name, allowed `shared_bytes` of dynamic shared memory."""
        cuda = driver()
        function = call(cuda.cuModuleGetFunction, self._module, name.encode())
        attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call(cuda.cuFuncSetAttribute, function, attribute, shared_bytes)
        return function

    def time_ms(self, function: Any, grid: int, threads: int, shared_bytes: int, arguments: list[Argument]) -> float:
        """Milliseconds of one launch."""
        cuda = driver()
        call(cuda.cuEventRecord, self._events[0], 0)
        call(
            cuda.cuLaunchKernel, function, grid, 1, 1, threads, 1, 1, shared_bytes, 0, pack_arguments(arguments), 0
        )  # fmt: skip
        call(cuda.cuEventRecord, self._events[1], 0)
        call(cuda.cuEventSynchronize, self._events[1])
        return float(call(cuda.cuEventElapsedTime, *self._events))
