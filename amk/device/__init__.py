"""Which GPUs this machine has. Nothing here needs a driver until it is called."""

from amk.device.driver import (
    MIN_DRIVER,
    Device,
    Memory,
    NoGpuError,
    devices,
    driver_version,
    first_device,
    gpu_count,
    memory,
    smi_driver_version,
)

__all__ = [
    "MIN_DRIVER",
    "Device",
    "Memory",
    "NoGpuError",
    "devices",
    "driver_version",
    "first_device",
    "gpu_count",
    "memory",
    "smi_driver_version",
]
