"""Device discovery against a stand-in driver: what is read, and what each failure says."""

from __future__ import annotations

import pytest

from amk.device import Device, NoGpuError, driver, memory
from amk.errors import DeviceError
from tests.fake_gpu import FakeGpu, NoDriver, Status, use


def test_reads_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeGpu())
    (device,) = driver.devices()
    assert (device.name, device.arch, device.sms) == ("NVIDIA H200", "sm_90", 132)
    assert device.cooperative_launch
    assert not device.drives_display
    assert 4800 < device.bandwidth_gb_s < 5000
    assert driver.gpu_count() == 1
    assert driver.driver_version() == (13, 0)


def test_memory_lets_go_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGpu(fails={"cuMemGetInfo": Status.CUDA_ERROR_UNKNOWN})
    use(monkeypatch, fake)
    with pytest.raises(DeviceError, match="cannot read the memory of GPU 0: CUDA_ERROR_UNKNOWN"):
        memory(0)
    assert fake.calls[-2:] == ["cuCtxPopCurrent", "cuDevicePrimaryCtxRelease"]


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeGpu())
    assert memory(0) == driver.Memory(free_bytes=100 << 30, total_bytes=139 << 30)


def test_no_driver_library(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, NoDriver())
    with pytest.raises(NoGpuError, match=r"no NVIDIA driver .* install driver 580 or newer; or use --device cpu"):
        driver.devices()
    assert driver.gpu_count() == 0


def test_driver_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeGpu(cuda=12040))
    with pytest.raises(NoGpuError, match=r"driver for CUDA 12\.4 is too old for CUDA 13; install driver 580"):
        driver.devices()


@pytest.mark.parametrize("fake", [FakeGpu(count=0), FakeGpu(fails={"cuInit": Status.CUDA_ERROR_NO_DEVICE})])
def test_driver_without_gpu(monkeypatch: pytest.MonkeyPatch, fake: FakeGpu) -> None:
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
    use(monkeypatch, FakeGpu(fails={"cuInit": status}))
    with pytest.raises(DeviceError, match=says):
        driver.devices()


@pytest.mark.gpu
def test_this_machine(gpu: Device) -> None:
    room = memory(gpu.index)
    assert 0 < room.free_bytes <= room.total_bytes
    assert gpu.cooperative_launch
