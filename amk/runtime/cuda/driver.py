"""The few driver calls the machine makes, each checked, with memory that is freed together."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import DeviceError

Argument = tuple[Any, Any]  # (value, ctypes type)


def driver() -> Any:
    """The driver API binding. Raises DeviceError where it cannot be loaded."""
    try:
        from cuda.bindings import driver as cuda
    except ImportError as error:
        raise DeviceError(f"the CUDA driver binding cannot be loaded ({error}); pip install cuda-python") from error
    return cuda


def call(function: Any, *args: Any) -> Any:
    """Call a driver function; its results without the status. Raises DeviceError naming the call and the error."""
    status, *results = function(*args)
    if int(status) != 0:
        _, text = driver().cuGetErrorString(status)
        name = getattr(function, "__name__", str(function))
        raise DeviceError(f"{name} failed: {text.decode() if text else status}")
    return results[0] if len(results) == 1 else results


@dataclass
class Memory:
    """Owner of every allocation of a machine; `close` frees them all."""

    device: list[Any] = field(default_factory=list)
    pinned: list[Any] = field(default_factory=list)

    def allocate(self, size: int, fill: int | None = None) -> int:
        """Device memory of `size` bytes (at least one), optionally filled with a byte; its address."""
        cuda = driver()
        pointer = call(cuda.cuMemAlloc, max(1, size))
        self.device.append(pointer)
        if fill is not None:
            call(cuda.cuMemsetD8, pointer, fill, max(1, size))
        return int(pointer)

    def upload(self, array: npt.NDArray[Any]) -> int:
        """A copy of a host array in new device memory."""
        pointer = self.allocate(array.nbytes)
        to_device(pointer, array)
        return pointer

    def pin(self, dtype: npt.DTypeLike, count: int) -> npt.NDArray[Any]:
        """Page-locked host memory as an array, which the kernel writes under the same address."""
        cuda = driver()
        size = np.dtype(dtype).itemsize * count
        pointer = call(cuda.cuMemHostAlloc, size, 0)
        self.pinned.append(pointer)
        raw = (ctypes.c_byte * size).from_address(int(pointer))
        array: npt.NDArray[Any] = np.ctypeslib.as_array(raw).view(dtype)
        return array

    def free(self, pointer: int) -> None:
        """Free one device allocation early."""
        for owned in self.device:
            if int(owned) == pointer:
                self.device.remove(owned)
                call(driver().cuMemFree, owned)
                return

    def close(self) -> None:
        """Free everything. After a kernel trap the driver has freed it already and says so; that is fine here."""
        cuda = driver()
        for pointer in self.device:
            cuda.cuMemFree(pointer)
        for pointer in self.pinned:
            cuda.cuMemFreeHost(pointer)
        self.device.clear()
        self.pinned.clear()


def to_device(pointer: int, array: npt.NDArray[Any]) -> None:
    """Copy a C-contiguous host array to device memory."""
    contiguous = np.ascontiguousarray(array)
    if contiguous.nbytes:
        call(driver().cuMemcpyHtoD, pointer, contiguous.ctypes.data, contiguous.nbytes)


def to_host(array: npt.NDArray[Any], pointer: int) -> None:
    """Fill a C-contiguous host array from device memory."""
    if array.nbytes:
        call(driver().cuMemcpyDtoH, array.ctypes.data, pointer, array.nbytes)


def pack_arguments(arguments: list[Argument]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Kernel arguments in the form that the binding takes."""
    return tuple(value for value, _ in arguments), tuple(kind for _, kind in arguments)
