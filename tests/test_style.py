"""The linter, the formatter and the type checker, run as tests so that CI needs nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("amk", "schedule_ir", "validator", "autoresearch")


def run(*command: str) -> None:
    """Run a tool as a module of this interpreter; fail with its output."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_lint() -> None:
    run("ruff", "check", "--no-cache", ".")


def test_format() -> None:
    run("ruff", "format", "--no-cache", "--check", ".")


def test_types() -> None:
    run("mypy", *(package for package in PACKAGES if any((ROOT / package).rglob("*.py"))))


@pytest.mark.parametrize("package", PACKAGES)
def test_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_kernels_hold_no_python() -> None:
    # On sys.path a package called kernels is taken for the Hugging Face package of that name.
    assert not list((ROOT / "kernels").rglob("*.py"))
