"""Device discovery against a stand-in driver: what is read, and what each failure says."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

import pytest

from amk.device import Device, NoGpuError, driver, memory
from amk.errors import DeviceError

ATTRIBUTES = {
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


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_UNKNOWN = 999
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803


Attribute = Enum("Attribute", {f"CU_DEVICE_ATTRIBUTE_{name}": name for name in ATTRIBUTES})  # type: ignore[misc]


class FakeDriver:
    """The calls that discovery makes; `fails` gives a call another status."""

    CUdevice_attribute = Attribute

    def __init__(self, version: int = 13000, count: int = 1, **fails: Status) -> None:
        self.answers: dict[str, Any] = {
            "cuDriverGetVersion": (version,),
            "cuInit": (),
            "cuDeviceGetCount": (count,),
            "cuDeviceGet": ("handle",),
            "cuDeviceGetName": (b"NVIDIA H200\0\0",),
            "cuDeviceTotalMem": (139 << 30,),
            "cuDevicePrimaryCtxRetain": ("context",),
            "cuCtxPushCurrent": (),
            "cuMemGetInfo": (100 << 30, 139 << 30),
            "cuCtxPopCurrent": ("context",),
            "cuDevicePrimaryCtxRelease": (),
        }
        self.fails = fails
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> tuple[Any, ...]:
            self.calls.append(name)
            if name == "cuDeviceGetAttribute":
                return (Status.CUDA_SUCCESS, ATTRIBUTES[args[0].value])
            status = self.fails.get(name, Status.CUDA_SUCCESS)
            return (status, *self.answers[name])

        return call


def use(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    monkeypatch.setattr(driver, "_bindings", lambda: fake)


def test_reads_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeDriver())
    (device,) = driver.devices()
    assert (device.name, device.arch, device.sms) == ("NVIDIA H200", "sm_90", 132)
    assert device.cooperative_launch
    assert not device.drives_display
    assert 4800 < device.bandwidth_gb_s < 5000
    assert driver.gpu_count() == 1
    assert driver.driver_version() == (13, 0)


def test_memory_lets_go_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDriver(cuMemGetInfo=Status.CUDA_ERROR_UNKNOWN)
    use(monkeypatch, fake)
    with pytest.raises(DeviceError, match="cannot read the memory of GPU 0: CUDA_ERROR_UNKNOWN"):
        memory(0)
    assert fake.calls[-2:] == ["cuCtxPopCurrent", "cuDevicePrimaryCtxRelease"]


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeDriver())
    assert memory(0) == driver.Memory(free_bytes=100 << 30, total_bytes=139 << 30)


def test_no_driver_library(monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        def cuDriverGetVersion(self) -> None:  # noqa: N802
            raise RuntimeError("libcuda.so.1 not found by the loader")

    use(monkeypatch, Absent())
    with pytest.raises(NoGpuError, match=r"no NVIDIA driver .* install driver 580 or newer; or use --device cpu"):
        driver.devices()
    assert driver.gpu_count() == 0


def test_driver_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeDriver(version=12040))
    monkeypatch.setattr(driver, "smi_driver_version", lambda: None)
    with pytest.raises(NoGpuError, match=r"driver for CUDA 12\.4 is too old for CUDA 13; install driver 580"):
        driver.devices()


@pytest.mark.parametrize("fake", [FakeDriver(count=0), FakeDriver(cuInit=Status.CUDA_ERROR_NO_DEVICE)])
def test_driver_without_gpu(monkeypatch: pytest.MonkeyPatch, fake: FakeDriver) -> None:
    use(monkeypatch, fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(NoGpuError, match="the driver sees no GPU; see whether nvidia-smi lists one"):
        driver.devices()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoGpuError, match="CUDA_VISIBLE_DEVICES=''; change or unset it"):
        driver.devices()


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (Status.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "reinstall driver 580 or newer"),
        (Status.CUDA_ERROR_UNKNOWN, "see whether nvidia-smi works"),
        (Status.CUDA_ERROR_OUT_OF_MEMORY, "its memory is full"),
    ],
)
def test_other_failures_name_the_way_out(monkeypatch: pytest.MonkeyPatch, status: Status, says: str) -> None:
    use(monkeypatch, FakeDriver(cuInit=status))
    with pytest.raises(DeviceError, match=says):
        driver.devices()


@pytest.mark.gpu
def test_this_machine(gpu: Device) -> None:
    room = memory(gpu.index)
    assert 0 < room.free_bytes <= room.total_bytes
    assert gpu.cooperative_launch
