"""A stand-in for the CUDA driver, as far as opening a GPU goes: another GPU, a smaller one, or none at all."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

import pytest

H200 = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "L2_CACHE_SIZE": 60 << 20,
    "MEMORY_CLOCK_RATE": 3201000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
    "COOPERATIVE_LAUNCH": 1,
    "KERNEL_EXEC_TIMEOUT": 0,
}
Attribute = Enum("Attribute", {f"CU_DEVICE_ATTRIBUTE_{name}": name for name in H200})  # type: ignore[misc]


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_UNKNOWN = 999
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803


class FakeGpu:
    """Answers what discovery and the CUDA machine ask before they allocate anything.

    `attributes` replace the H200's, `fails` gives calls another status; `calls` are the calls so far.
    """

    CUdevice_attribute = Attribute

    def __init__(
        self,
        name: str = "NVIDIA H200",
        cuda: int = 13000,
        count: int = 1,
        free: int = 100 << 30,
        fails: dict[str, Status] | None = None,
        **attributes: int,
    ) -> None:
        self.attributes = H200 | attributes
        self.fails = fails or {}
        self.calls: list[str] = []
        self.answers: dict[str, tuple[Any, ...]] = {
            "cuDriverGetVersion": (cuda,),
            "cuInit": (),
            "cuDeviceGetCount": (count,),
            "cuDeviceGet": ("handle",),
            "cuDeviceGetName": (name.encode() + b"\0\0",),
            "cuDeviceTotalMem": (139 << 30,),
            "cuDevicePrimaryCtxRetain": ("context",),
            "cuDevicePrimaryCtxRelease": (),
            "cuCtxSetCurrent": (),
            "cuCtxPushCurrent": (),
            "cuCtxPopCurrent": ("context",),
            "cuMemGetInfo": (free, 139 << 30),
        }

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> tuple[Any, ...]:
            self.calls.append(name)
            if name == "cuDeviceGetAttribute":
                return (Status.CUDA_SUCCESS, self.attributes[args[0].value])
            return (self.fails.get(name, Status.CUDA_SUCCESS), *self.answers[name])

        return call


class NoDriver:
    """What the bindings do where there is no libcuda."""

    def cuDriverGetVersion(self) -> None:  # noqa: N802
        raise RuntimeError("libcuda.so.1 not found by the loader")


def use(monkeypatch: pytest.MonkeyPatch, fake: FakeGpu | NoDriver) -> None:
    """Let discovery and the CUDA machine see `fake` instead of this machine's driver."""
    monkeypatch.setattr("amk.device.driver._bindings", lambda: fake)
    monkeypatch.setattr("amk.device.driver.smi_driver_version", lambda: None)
    for module in ("driver", "machine", "weights"):
        monkeypatch.setattr(f"amk.runtime.cuda.{module}.driver", lambda: fake)
