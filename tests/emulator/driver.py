"""The CUDA driver functions that amk.runtime.cuda calls, for a machine that is emulated in this process."""

# ruff: noqa: N802, N815

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from schedule_ir.target import Target

MARGIN = 4096
"""Bytes before and after every allocation that nothing may write."""
UNWRITTEN = 0xFF
ROUNDS = 2000
"""Of the scheduler, between two answers to the host."""

_RUNNING, _DONE = 0, 1
_ATTRIBUTES = (
    "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT", "COOPERATIVE_LAUNCH",
)  # fmt: skip


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_LAUNCH_FAILED = 719


class FunctionAttribute(Enum):
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class EmulatedDriver:
    """Stands in for `cuda.bindings.driver`. A module image is the path of a library that `build` made.

    `seed` draws the interleaving of every launch.
    """

    CUdevice_attribute = Enum(  # type: ignore[misc]
        "CUdevice_attribute", {f"CU_DEVICE_ATTRIBUTE_{name}": name for name in _ATTRIBUTES}
    )
    CUfunction_attribute = FunctionAttribute
    CUresult = Status

    def __init__(self, target: Target, seed: int = 0) -> None:
        major, minor = divmod(int(target.arch.removeprefix("sm_")), 10)
        self._attributes = dict(zip(_ATTRIBUTES, (major, minor, target.sms, 1), strict=True))
        self.seed = seed
        self._memory: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        self._launched: ctypes.CDLL | None = None
        self._failure = ""

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        """Calls that have nothing to do here."""
        if name not in _NOTHING_TO_DO:
            raise AttributeError(name)
        return lambda *_: (Status.CUDA_SUCCESS, *_NOTHING_TO_DO[name])

    # Devices

    def cuDeviceGetAttribute(self, attribute: Enum, _device: Any) -> tuple[Status, int]:
        return Status.CUDA_SUCCESS, self._attributes[attribute.value]

    def cuGetErrorString(self, _status: Status) -> tuple[Status, bytes]:
        return Status.CUDA_SUCCESS, self._failure.encode()

    # Memory: device memory is host memory

    def cuMemAlloc(self, size: int) -> tuple[Status, int]:
        memory = np.full(size + 2 * MARGIN + 256, UNWRITTEN, np.uint8)
        begin = -(-(memory.ctypes.data + MARGIN) // 256) * 256
        self._memory[begin] = memory
        return Status.CUDA_SUCCESS, begin

    def cuMemHostAlloc(self, size: int, _flags: int) -> tuple[Status, int]:
        return self.cuMemAlloc(size)

    def cuMemFree(self, pointer: int) -> tuple[Status]:
        self._check_margins(pointer)
        del self._memory[pointer]
        return (Status.CUDA_SUCCESS,)

    cuMemFreeHost = cuMemFree

    def cuMemsetD8(self, pointer: int, value: int, size: int) -> tuple[Status]:
        ctypes.memset(pointer, value, size)
        return (Status.CUDA_SUCCESS,)

    def cuMemcpyHtoD(self, pointer: int, source: int, size: int) -> tuple[Status]:
        ctypes.memmove(pointer, source, size)
        return (Status.CUDA_SUCCESS,)

    def cuMemcpyDtoH(self, target: int, pointer: int, size: int) -> tuple[Status]:
        ctypes.memmove(target, pointer, size)
        return (Status.CUDA_SUCCESS,)

    def _check_margins(self, pointer: int) -> None:
        memory = self._memory[pointer]
        before = pointer - memory.ctypes.data
        assert (memory[:before] == UNWRITTEN).all(), "something wrote before an allocation"
        assert (memory[-MARGIN:] == UNWRITTEN).all(), "something wrote behind an allocation"

    # Modules and launches

    def cuModuleLoadData(self, image: bytes) -> tuple[Status, ctypes.CDLL]:
        library = ctypes.CDLL(str(Path(image.decode())), mode=ctypes.RTLD_LOCAL)
        library.emu_start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_uint] * 3, ctypes.c_uint64]
        library.emu_call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
        library.emu_error.restype = ctypes.c_char_p
        library.emu_clocks.restype = ctypes.c_longlong
        return Status.CUDA_SUCCESS, library

    def cuModuleGetFunction(self, module: ctypes.CDLL, name: bytes) -> tuple[Status, tuple[ctypes.CDLL, int]]:
        function = getattr(module, f"emu_bind_{name.decode()}")
        return Status.CUDA_SUCCESS, (module, ctypes.cast(function, ctypes.c_void_p).value or 0)

    def cuLaunchKernel(self, kernel: tuple[ctypes.CDLL, int], *rest: Any) -> tuple[Status]:
        x, y, z, threads, _, _, _, _, (values, kinds), _ = rest
        module, function = kernel
        arguments = [kind(value) for value, kind in zip(values, kinds, strict=True)]
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        grid = (ctypes.c_uint * 3)(x, y, z)
        if module.emu_call(function, pointers, grid, threads):
            return (self._failed(module),)
        return (Status.CUDA_SUCCESS,)

    def cuLaunchCooperativeKernel(self, kernel: tuple[ctypes.CDLL, int], *rest: Any) -> tuple[Status]:
        blocks, _, _, threads, _, _, shared, _, arguments = rest
        module, function = kernel
        module.emu_start(function, arguments, blocks, threads, shared, self.seed)
        self._launched = module
        return (Status.CUDA_SUCCESS,)

    def cuStreamQuery(self, _stream: Any) -> tuple[Status]:
        assert self._launched is not None
        state = self._launched.emu_run(ROUNDS)
        if state == _RUNNING:
            return (Status.CUDA_ERROR_NOT_READY,)
        for pointer in self._memory:
            self._check_margins(pointer)
        return (Status.CUDA_SUCCESS if state == _DONE else self._failed(self._launched),)

    def _failed(self, module: ctypes.CDLL) -> Status:
        self._failure = module.emu_error().decode()
        return Status.CUDA_ERROR_LAUNCH_FAILED

    def clocks(self) -> int:
        """Clocks of the launch so far, or of the last one."""
        return int(self._launched.emu_clocks()) if self._launched else 0


_NOTHING_TO_DO: dict[str, tuple[Any, ...]] = {
    "cuInit": (),
    "cuDeviceGet": (0,),
    "cuDeviceGetName": (b"emulated\0",),
    "cuDevicePrimaryCtxRetain": ("context",),
    "cuDevicePrimaryCtxRelease": (),
    "cuCtxSetCurrent": (),
    "cuCtxSynchronize": (),
    "cuMemGetInfo": (1 << 40, 1 << 40),
    "cuFuncSetAttribute": (),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (1,),
    "cuStreamCreate": ("stream",),
    "cuEventCreate": ("event",),
    "cuModuleUnload": (),
    "cuStreamDestroy": (),
    "cuEventDestroy": (),
    "cuEventRecord": (),
    "cuEventElapsedTime": (1.0,),
}


@contextmanager
def installed(driver: EmulatedDriver) -> Iterator[EmulatedDriver]:
    """Let the CUDA machine see this driver."""
    with ExitStack() as stack:
        for module in ("driver", "machine", "weights"):
            stack.enter_context(patch(f"amk.runtime.cuda.{module}.driver", lambda: driver))
        yield driver
