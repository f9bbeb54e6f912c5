"""What this machine can do with amk, as a list of checks that each name the fix.

The CPU path (build for a named GPU, execute its device tables with NumPy) needs no driver; the checks that only a
GPU needs say so, and do not count against the machine.
"""

from __future__ import annotations

import importlib
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from amk.device import MIN_DRIVER, Device, NoGpuError, devices, driver_version, memory, smi_driver_version
from amk.device.nvrtc import compile_probe
from amk.errors import AmkError
from amk.gpus import from_device, table

PROBED_ARCHES = ("sm_80", "sm_90a", "sm_120a")
MIN_FREE_BYTES = 1 << 30


@dataclass(frozen=True)
class Check:
    """One row: what was looked at, whether it is fine, what was found, and the fix if it is not fine.

    `needed` is False for what only running on a GPU needs.
    """

    name: str
    ok: bool
    found: str
    fix: str | None = None
    needed: bool = True


def examine() -> Iterator[Check]:
    """Every check of this machine, in the order in which a person fixes things."""
    yield _python()
    yield from _packages()
    yield _tokenizer()
    for arch in PROBED_ARCHES:
        yield _nvrtc(arch)
    yield _disk(_cache_disk())
    yield from _gpus()


def cpu_path_works(checks: list[Check]) -> bool:
    """Whether building for a named GPU and running on the CPU works."""
    return all(check.ok for check in checks if check.needed)


def _python() -> Check:
    ok = (3, 11) <= sys.version_info[:2] < (3, 14)
    fix = None if ok else "use Python 3.11, 3.12 or 3.13"
    return Check("python", ok, f"{platform.python_version()} on {platform.machine()}", fix)


def _packages() -> Iterator[Check]:
    """amk and what its own metadata requires, so that a bound is written down once, in pyproject.toml."""
    try:
        requirements = [Requirement(text) for text in requires("amk") or ()]
    except PackageNotFoundError:
        yield Check("amk", False, "runs from a checkout without being installed", "pip install --editable .")
        return
    yield Check("amk", True, version("amk"))
    for requirement in requirements:
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _package(requirement)


def _package(requirement: Requirement) -> Check:
    fix = f"pip install '{requirement}'"
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return Check(requirement.name, False, "not installed", fix)
    if not requirement.specifier.contains(found, prereleases=True):
        return Check(requirement.name, False, f"{found}, which amk does not work with", fix)
    return Check(requirement.name, True, found)


def _tokenizer() -> Check:
    """The compiled tokenizer loads; a wheel for another machine imports only as far as its Python files."""
    try:
        importlib.import_module("tokenizers.models")
    except ImportError as error:
        return Check("tokenizer", False, str(error), "pip install --force-reinstall tokenizers transformers")
    return Check("tokenizer", True, "loads")


def _nvrtc(arch: str) -> Check:
    started = time.monotonic()
    try:
        size = compile_probe(arch)
    except AmkError as error:
        return Check(f"compile {arch}", False, str(error), "pip install --force-reinstall 'nvidia-cuda-nvrtc>=13,<14'")
    return Check(f"compile {arch}", True, f"{size} bytes of cubin in {time.monotonic() - started:.2f} s")


def _cache_disk() -> Path:
    """The nearest folder that exists above amk's cache."""
    from amk.model.digest import cache_folder

    folder = cache_folder()
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    ok = free >= MIN_FREE_BYTES
    fix = None if ok else f"free {gib(MIN_FREE_BYTES)} on the disk of {folder}"
    return Check("disk", ok, f"{gib(free)} free for {folder}", fix)


def _gpus() -> Iterator[Check]:
    try:
        found = devices()
    except NoGpuError as error:
        yield Check("gpu", False, error.reason, "or stay on the CPU: --device cpu", needed=False)
        return
    major, minor = driver_version()
    yield Check("driver", True, f"{smi_driver_version() or f'{MIN_DRIVER}+'}, CUDA {major}.{minor}", needed=False)
    for device in found:
        yield _gpu(device)


def _gpu(device: Device) -> Check:
    name = f"gpu {device.index}"
    try:
        facts = _facts(device)
    except AmkError as error:
        return Check(name, False, str(error), "or stay on the CPU: --device cpu", needed=False)
    if not device.cooperative_launch:
        fix = "use a GPU that has it (MPS and some virtual GPUs do not)"
        return Check(name, False, f"{facts}; no cooperative launch", fix, needed=False)
    return Check(name, True, f"{facts}; cooperative launch", needed=False)


def _facts(device: Device) -> str:
    gpu = from_device(device)
    room = memory(device.index)
    known = f"--gpu {gpu.name}" if gpu.name in table() else f"not in the table, --gpu auto makes {gpu.name}"
    facts = [
        f"{device.name} ({known})",
        f"{device.arch}, {device.sms} SMs",
        f"{gib(room.free_bytes)} of {gib(room.total_bytes)} free",
    ]
    return "; ".join(facts + (["drives a display"] if device.drives_display else []))


def gib(count: int) -> str:
    """Bytes as GiB, for people."""
    return f"{count / (1 << 30):.1f} GiB"
