"""`amk doctor`: each check both ways, and what the command prints."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amk import doctor
from amk.device import Memory, NoGpuError
from amk.device import nvrtc as probe
from amk.errors import DeviceError
from tests.cli.conftest import Run
from tests.cli.test_gpus import H200

GOOD = doctor.Check("numpy", True, "2.0")
NO_GPU = doctor.Check("gpu", False, "no driver", "install one", needed=False)
BROKEN = doctor.Check("compile sm_80", False, "no NVRTC", "pip install nvrtc")


def use(monkeypatch: pytest.MonkeyPatch, *checks: doctor.Check) -> None:
    monkeypatch.setattr("amk.cli.doctor.examine", lambda: iter(checks))


def test_cpu_only_machine_is_fine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, GOOD, NO_GPU)
    result = run("doctor")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "ok       numpy  2.0",
        "missing  gpu    no driver; install one",
        "amk builds here (name a GPU with --gpu) and decodes on the CPU; no GPU can be used.",
    ]


def test_broken_machine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, GOOD, BROKEN)
    result = run("doctor")
    assert result.exit_code == 1
    assert result.stdout.endswith("amk does not work here yet; fix: compile sm_80\n")


def test_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, GOOD)
    document = json.loads(run("doctor", "--json").stdout)
    assert document["cpu_path"] is document["gpu_path"] is True
    assert document["checks"] == [{"name": "numpy", "ok": True, "found": "2.0", "fix": None, "needed": True}]


def test_this_machine() -> None:
    checks = {check.name: check for check in doctor.examine()}
    assert checks["compile sm_80"].ok
    assert checks["compile sm_90a"].ok
    assert checks["compile sm_120a"].ok
    assert checks["tokenizer"].ok
    assert all(check.fix for check in checks.values() if not check.ok)


def test_packages_come_from_our_own_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    required = ["numpy>=1", "nvidia-cuda-cccl<1", "no-such-package>=2", "torch==0; extra == 'test'"]
    monkeypatch.setattr(doctor, "requires", lambda _: required)
    real = doctor.version
    monkeypatch.setattr(doctor, "version", lambda name: "0.1.0" if name == "amk" else real(name))
    rows = [(check.name, check.ok, check.fix) for check in doctor._packages()]
    assert rows == [
        ("amk", True, None),
        ("numpy", True, None),
        ("nvidia-cuda-cccl", False, "pip install 'nvidia-cuda-cccl<1'"),
        ("no-such-package", False, "pip install 'no-such-package>=2'"),
    ]


def test_checkout_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> list[str]:
        raise doctor.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", none)
    (check,) = doctor._packages()
    assert (check.ok, check.fix) == (False, "pip install --editable .")


def test_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    assert doctor._python().fix == "use Python 3.11, 3.12 or 3.13"


def test_tokenizer_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers.models", None)
    assert not doctor._tokenizer().ok


def test_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    check = doctor._disk(tmp_path)
    assert (check.ok, check.fix) == (False, f"free 1.0 GiB on the disk of {tmp_path}")


def test_nvrtc_refuses_an_unknown_arch() -> None:
    assert not doctor._nvrtc("sm_1").ok


def test_nvrtc_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise DeviceError("NVRTC cannot be loaded")

    monkeypatch.setattr(probe, "_library", none)
    check = doctor._nvrtc("sm_80")
    assert check.found == "NVRTC cannot be loaded"
    assert check.fix is not None


def with_gpu(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[doctor.Check]:
    monkeypatch.setattr(doctor, "devices", lambda: (replace(H200, **changes),))
    monkeypatch.setattr(doctor, "driver_version", lambda: (13, 0))
    monkeypatch.setattr(doctor, "smi_driver_version", lambda: "580.65.06")
    monkeypatch.setattr(doctor, "memory", lambda _: Memory(100 << 30, 139 << 30))
    return list(doctor._gpus())


def test_gpu_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, gpu = with_gpu(monkeypatch)
    assert driver.found == "580.65.06, CUDA 13.0"
    assert gpu.found == ("NVIDIA H200 (--gpu h200); sm_90, 132 SMs; 100.0 GiB of 139.0 GiB free; cooperative launch")


def test_gpu_outside_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    _, gpu = with_gpu(monkeypatch, name="NVIDIA GH200", drives_display=True)
    assert "not in the table, --gpu auto makes nvidia-gh200" in gpu.found
    assert "drives a display" in gpu.found


def test_gpu_without_code_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _, gpu = with_gpu(monkeypatch, name="Tesla T4", arch="sm_75")
    assert (gpu.ok, gpu.needed) == (False, False)


def test_gpu_without_cooperative_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    _, gpu = with_gpu(monkeypatch, cooperative_launch=False)
    assert not gpu.ok
    assert "no cooperative launch" in gpu.found


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise NoGpuError("no driver")

    monkeypatch.setattr(doctor, "devices", none)
    (check,) = doctor._gpus()
    assert (check.found, check.needed) == ("no driver", False)
