"""Where a result comes from: machine, versions, commit and the hashes of what was measured. No paths."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import amk
from amk.artifact import Artifact
from amk.device import Device, driver_version

PACKAGES = ("numpy", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-ml-py", "torch", "triton")


def provenance(artifact: Artifact, device: Device, limits: dict[str, Any], command: str) -> dict[str, Any]:
    """Everything that is needed to tell two results apart; `limits` is what NVML says of the GPU."""
    return surroundings(device, limits, command) | {"artifact": _artifact(artifact)}


def surroundings(device: Device, limits: dict[str, Any], command: str) -> dict[str, Any]:
    """The same of what was measured without an artifact."""
    major, minor = driver_version()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "gpu": {"name": device.name, "arch": device.arch, "sms": device.sms, **limits},
        "cuda": f"{major}.{minor}",
        "python": platform.python_version(),
        "amk": amk.__version__,
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "commit": commit(Path(amk.__file__).parent),
    }


def commit(folder: Path) -> str | None:
    """The commit of amk's checkout ("+" where files were changed), or None where `folder` is not in one."""
    found = _git(folder, "rev-parse", "HEAD")
    if not found or _git(folder, "rev-parse", "--show-prefix") != f"{folder.name}/":
        return None
    return found + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")


def _git(folder: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _artifact(artifact: Artifact) -> dict[str, Any]:
    build, model = artifact.manifest["build"], artifact.manifest["model"]
    return {
        "sha256": dict(artifact.manifest["sha256"]),
        "kernels_sha256": build["kernels_sha256"],
        "model_digest": build["model_digest"],
        "random_seed": model["random_seed"],
        "knobs": build["knobs"],
        "max_seq": build["max_seq"],
        "kv_dtype": build["kv_dtype"],
        "compiler": artifact.manifest["compiler"],
    }
