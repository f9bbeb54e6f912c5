"""The GPU table, and finding a row for a device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amk import gpus
from amk.device import Device, NoGpuError
from amk.errors import DeviceError, UsageError

H200 = Device(
    index=0,
    name="NVIDIA H200",
    arch="sm_90",
    sms=132,
    smem_per_block_bytes=232448,
    l2_bytes=60 << 20,
    memory_total_bytes=139 << 30,
    bandwidth_gb_s=4814.0,
    cooperative_launch=True,
    drives_display=False,
)
SMS = {
    "a100-40": 108,
    "a100-80": 108,
    "a10": 72,
    "l4": 58,
    "l40s": 142,
    "rtx4090": 128,
    "h100-sxm": 132,
    "h100-pcie": 114,
    "h200": 132,
    "rtx5090": 170,
    "rtx-pro-6000": 188,
}
SMEM_KIB = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_120": 99}


@pytest.mark.parametrize(("name", "sms"), SMS.items())
def test_sm_counts(name: str, sms: int) -> None:
    assert gpus.lookup(name).sms == sms


def test_every_row_is_sane() -> None:
    for gpu in gpus.table().values():
        assert gpu.smem_per_block_bytes == SMEM_KIB[gpu.arch] * 1024
        assert 6 << 20 <= gpu.l2_bytes <= 128 << 20
        assert 20 << 30 < gpu.memory_bytes < 150 << 30
        assert gpu.device_names


def test_device_names_are_unique() -> None:
    names = [name for gpu in gpus.table().values() for name in gpu.device_names]
    assert len(names) == len(set(names))


def test_lookup_ignores_case_and_space() -> None:
    assert gpus.lookup(" H200 ").name == "h200"


def test_lookup_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="no GPU called 'h20'; did you mean h200"):
        gpus.lookup("h20")


def test_lookup_lists_all_when_nothing_is_near() -> None:
    with pytest.raises(UsageError, match=r"known: a100-40, a100-80, .*rtx5090"):
        gpus.lookup("zzzz")


def test_a_known_device_has_its_row() -> None:
    assert gpus.from_device(H200) is gpus.lookup("h200")


def test_a_part_of_a_known_device_has_its_own_row() -> None:
    part = gpus.from_device(replace(H200, name="NVIDIA H200 MIG 3g.71gb", sms=60))
    assert (part.name, part.family, part.sms) == ("nvidia-h200-mig-3g-71gb", "sm90", 60)
    assert part.measured_bandwidth_gb_s is None


def test_same_name_but_other_sm_count_is_not_the_row() -> None:
    assert gpus.from_device(replace(H200, sms=131)).sms == 131


def test_unsupported_arch() -> None:
    with pytest.raises(DeviceError, match="Tesla T4 is sm_75; amk has code for sm_80, sm_86"):
        gpus.from_device(replace(H200, name="Tesla T4", arch="sm_75"))


def test_auto_without_gpu_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Device:
        raise NoGpuError("no driver")

    monkeypatch.setattr(gpus, "first_device", none)
    with pytest.raises(DeviceError, match=r"--gpu auto: no driver; or name the GPU .* --gpu: a100-40, .*h200"):
        gpus.resolve("auto")


def test_auto_with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "first_device", lambda: H200)
    assert gpus.resolve("auto").name == "h200"


def test_target_takes_the_measured_bandwidth_or_estimates() -> None:
    assert gpus.lookup("h200").as_target().bandwidth == 4590e9
    assert gpus.lookup("l4").as_target().bandwidth == 300e9 * gpus.ESTIMATED_READ_FRACTION


@pytest.mark.gpu
def test_this_machine(gpu: Device) -> None:
    row = gpus.detect()
    assert (row.arch, row.sms) == (gpu.arch, gpu.sms)
    assert row.smem_per_block_bytes == gpu.smem_per_block_bytes
    assert abs(row.bandwidth_gb_s / gpu.bandwidth_gb_s - 1) < 0.05
