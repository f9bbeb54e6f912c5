"""Generated source and kernel headers -> a shared library of this machine, with g++."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from amk.emit.compile import kernel_folder
from tests.emulator.translate import translate

DEVICE = Path(__file__).parent / "device"
KERNELS = ("amk_decode", "amk_repack", "amk_random")
_FLAGS = (
    "-std=c++17", "-fPIC", "-w", "-fno-strict-aliasing", "-ffp-contract=off", "-fno-gnu-unique", "-fvisibility=hidden",
    "-U_FORTIFY_SOURCE",  # it refuses longjmp to another stack
)  # fmt: skip

Edit = Callable[[str, str], str]
"""(header's name, its text) -> the text to compile instead."""


def why_not() -> str | None:
    """Why nothing can be compiled here, or None."""
    return None if shutil.which("g++") else "needs g++"


def build(source: str, folder: Path, edit: Edit = lambda _, text: text) -> Path:
    """The library of a generated source, made in `folder` unless it is there; `edit` may change kernel headers."""
    texts = {path.name: edit(path.name, path.read_text()) for path in sorted(kernel_folder().glob("*.cuh"))}
    texts["kernel.cpp"] = '#include "cuda.h"\n' + source + "".join(f"EMU_KERNEL({name})\n" for name in KERNELS)
    digest = hashlib.sha256(repr((sorted(texts.items()), _device_digest())).encode()).hexdigest()[:20]
    library = folder / f"{digest}.so"
    if not library.exists():
        place = folder / f"{digest}.{os.getpid()}"
        place.mkdir(parents=True)
        for name, text in texts.items():
            (place / name).write_text(translate(text))
        _compile(place / "kernel.cpp", place / "kernel.o", "-O1")
        _run("g++", "-shared", "-o", str(place / "kernel.so"), str(place / "kernel.o"), *_runtime(folder))
        (place / "kernel.so").rename(library)
    return library


def _runtime(folder: Path) -> list[str]:
    """The object files of the emulator itself."""
    objects = []
    for path in sorted(DEVICE.glob("*.cpp")):
        made = folder / f"{path.stem}-{_device_digest()}.o"
        if not made.exists():
            partial = made.with_suffix(f".{os.getpid()}")
            _compile(path, partial, "-O2")
            partial.rename(made)
        objects.append(str(made))
    return objects


@cache
def _device_digest() -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(DEVICE.iterdir()))).hexdigest()[:20]


def _compile(source: Path, out: Path, level: str) -> None:
    _run("g++", "-c", level, *_FLAGS, f"-I{DEVICE}", "-o", str(out), str(source))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr[:4000]}")
