"""What of amk itself an artifact depends on, beside the CUDA headers: the code that lowers, emits and proves."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("amk.lower", "amk.emit", "schedule_ir", "validator")


@cache
def builder_sha256() -> str:
    """Hash over the Python sources of `PACKAGES`, as installed.

    Releases are told apart by their version; this tells apart the states of a checkout between two.
    """
    digest = hashlib.sha256()
    for package in PACKAGES:
        folder = _folder(package)
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{package}/{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _folder(package: str) -> Path:
    """Where a package is; it is not imported, which takes the validator's solver with it."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
