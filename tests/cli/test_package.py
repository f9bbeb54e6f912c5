"""The wheel: it carries the CUDA sources and the type markers, and nothing that only a checkout needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Files of a wheel built from this checkout."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=ROOT, check=True)
    (wheel,) = out.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_kernels_are_package_data(names: set[str]) -> None:
    sources = {f"amk/_kernels/{path.relative_to(ROOT / 'kernels')}" for path in (ROOT / "kernels").rglob("*.cuh")}
    assert sources <= names


def test_every_package_is_there_and_typed(names: set[str]) -> None:
    for package in ("amk", "schedule_ir", "validator", "autoresearch"):
        assert f"{package}/py.typed" in names
    assert {"amk/gpus.json", "amk/tuned.json"} <= names


def test_nothing_else(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if "dist-info" not in top} == {"amk", "schedule_ir", "validator", "autoresearch"}
