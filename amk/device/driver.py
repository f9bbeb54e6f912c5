"""Discovery through the CUDA driver API: which GPUs there are and what they offer.

Every failure is a DeviceError that says what is missing and the way out. `cuda.bindings` is imported inside the
functions, because finding the driver library takes time and most commands do not need it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from amk.errors import DeviceError

MIN_DRIVER = 580
"""The first driver branch of CUDA 13."""

_MIN_CUDA = 13000


class NoGpuError(DeviceError):
    """No GPU can be used at all. `reason` says why and how to get one; the message adds that the CPU works too."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; or use --device cpu, which needs no GPU")
        self.reason = reason


@dataclass(frozen=True)
class Device:
    """A GPU of this machine. `bandwidth_gb_s` is memory clock times bus width, as in a data sheet."""

    index: int
    name: str
    arch: str
    sms: int
    smem_per_block_bytes: int
    l2_bytes: int
    memory_total_bytes: int
    bandwidth_gb_s: float
    cooperative_launch: bool
    drives_display: bool


@dataclass(frozen=True)
class Memory:
    """Memory of a GPU in bytes, other processes' use included."""

    free_bytes: int
    total_bytes: int


def gpu_count() -> int:
    """How many GPUs can be used; 0 where there is no driver, no GPU or too old a driver."""
    try:
        return len(devices())
    except DeviceError:
        return 0


def first_device() -> Device:
    """The GPU that amk runs on: the first one that the driver lists."""
    return devices()[0]


def devices() -> tuple[Device, ...]:
    """Every GPU that the driver lists, at least one; DeviceError otherwise."""
    api = _initialised()
    count = _call(api.cuDeviceGetCount(), "count the GPUs")
    if count == 0:
        raise NoGpuError(_no_gpu())
    return tuple(_device(api, index) for index in range(count))


def memory(index: int) -> Memory:
    """Free and total memory of a GPU. Makes its primary context, which the process shares, and lets go of it."""
    api = _initialised()
    handle = _call(api.cuDeviceGet(index), f"open GPU {index}")
    context = _call(api.cuDevicePrimaryCtxRetain(handle), f"make a context on GPU {index}")
    try:
        _call(api.cuCtxPushCurrent(context), f"use the context of GPU {index}")
        try:
            free, total = _call(api.cuMemGetInfo(), f"read the memory of GPU {index}")
        finally:
            _call(api.cuCtxPopCurrent(), f"leave the context of GPU {index}")
    finally:
        _call(api.cuDevicePrimaryCtxRelease(handle), f"release GPU {index}")
    return Memory(free_bytes=free, total_bytes=total)


def driver_version() -> tuple[int, int]:
    """The newest CUDA version that the driver supports, as (major, minor)."""
    version = _cuda_version(_bindings())
    return version // 1000, version % 1000 // 10


def smi_driver_version() -> str | None:
    """The driver's own version as nvidia-smi prints it ("580.65.06"), or None where NVML is not available."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _bindings() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError(f"cuda-python cannot be imported ({error}); pip install 'cuda-python>=13,<14'") from error
    return driver


def _cuda_version(api: Any) -> int:
    try:
        answer = api.cuDriverGetVersion()
    except RuntimeError as error:  # the loader's, when there is no libcuda.so.1
        reason = f"no NVIDIA driver on this machine (libcuda.so.1 not found); install driver {MIN_DRIVER} or newer"
        raise NoGpuError(reason) from error
    version: int = _call(answer, "ask the driver its version")
    return version


def _initialised() -> Any:
    api = _bindings()
    version = _cuda_version(api)
    if version < _MIN_CUDA:
        driver = smi_driver_version() or f"for CUDA {version // 1000}.{version % 1000 // 10}"
        raise NoGpuError(f"NVIDIA driver {driver} is too old for CUDA 13; install driver {MIN_DRIVER} or newer")
    _call(api.cuInit(0), "start the driver")
    return api


def _device(api: Any, index: int) -> Device:
    handle = _call(api.cuDeviceGet(index), f"open GPU {index}")
    name = _call(api.cuDeviceGetName(128, handle), f"name GPU {index}")
    keys = api.CUdevice_attribute

    def attribute(key: str) -> int:
        value = _call(api.cuDeviceGetAttribute(getattr(keys, f"CU_DEVICE_ATTRIBUTE_{key}"), handle), f"read {key}")
        return int(value)

    return Device(
        index=index,
        name=name.split(b"\0")[0].decode(),
        arch=f"sm_{attribute('COMPUTE_CAPABILITY_MAJOR')}{attribute('COMPUTE_CAPABILITY_MINOR')}",
        sms=attribute("MULTIPROCESSOR_COUNT"),
        smem_per_block_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        memory_total_bytes=int(_call(api.cuDeviceTotalMem(handle), f"read the memory of GPU {index}")),
        # kHz, two transfers a clock, bits
        bandwidth_gb_s=2 * attribute("MEMORY_CLOCK_RATE") * attribute("GLOBAL_MEMORY_BUS_WIDTH") / 8 / 1e6,
        cooperative_launch=bool(attribute("COOPERATIVE_LAUNCH")),
        drives_display=bool(attribute("KERNEL_EXEC_TIMEOUT")),
    )


def _call(answer: tuple[Any, ...], doing: str) -> Any:
    """The value of a driver call's answer (status, value...); DeviceError if the status is not success."""
    status, *values = answer
    if int(status) != 0:
        raise _error(status.name, doing)
    return values[0] if len(values) == 1 else tuple(values)


def _error(status: str, doing: str) -> DeviceError:
    if status == "CUDA_ERROR_NO_DEVICE":
        return NoGpuError(_no_gpu())
    if status == "CUDA_ERROR_OUT_OF_MEMORY":
        return DeviceError(f"cannot {doing}: its memory is full; nvidia-smi lists the processes that hold it")
    if status in ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "CUDA_ERROR_STUB_LIBRARY"):
        return NoGpuError(
            f"cannot {doing}: {status}, libcuda.so.1 is not that of the loaded driver; reinstall driver {MIN_DRIVER} "
            "or newer and restart"
        )
    return NoGpuError(f"cannot {doing}: {status}; see whether nvidia-smi works")


def _no_gpu() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return f"the driver sees no GPU with CUDA_VISIBLE_DEVICES={visible!r}; change or unset it"
    return "the driver sees no GPU; see whether nvidia-smi lists one"
