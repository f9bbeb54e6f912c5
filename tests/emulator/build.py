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
_RUNTIME = ("-c", "-O2", *_FLAGS)
_CHECKED = ("-O1", "-fsanitize=alignment", *_FLAGS)  # the runtime has what the sanitizer calls
_HEADER = ("-x", "c++-header", *_CHECKED)
_KERNEL = ("-c", *_CHECKED)

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
        runtime = _runtime(folder)
        place = folder / f"{digest}.{os.getpid()}"
        place.mkdir(parents=True)
        for name, text in texts.items():
            (place / name).write_text(translate(text))
        _wait(_start(*_KERNEL, f"-I{runtime}", "-o", place / "kernel.o", place / "kernel.cpp"))
        _wait(_start("-shared", "-o", place / "kernel.so", place / "kernel.o", *sorted(runtime.glob("*.o"))))
        (place / "kernel.so").rename(library)
    return library


def _runtime(folder: Path) -> Path:
    """The folder of the emulator itself, compiled: an object per source file, and its header for the kernels."""
    made = folder / _device_digest()
    if not made.exists():
        partial = folder / f"{_device_digest()}.{os.getpid()}"
        partial.mkdir(parents=True)
        compilers = [_start(*_RUNTIME, "-o", partial / f"{path.stem}.o", path) for path in DEVICE.glob("*.cpp")]
        compilers.append(_start(*_HEADER, "-o", partial / "cuda.h.gch", DEVICE / "cuda.h"))
        _wait(*compilers)
        _publish(partial, made)
    return made


def _publish(partial: Path, made: Path) -> None:
    """Rename a folder, unless another process was first."""
    try:
        partial.rename(made)
    except OSError:
        shutil.rmtree(partial)


@cache
def _device_digest() -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(DEVICE.iterdir()))).hexdigest()[:20]


def _start(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(["g++", *map(str, arguments)], stderr=subprocess.PIPE, text=True)


def _wait(*compilers: subprocess.Popen[str]) -> None:
    for compiler in compilers:
        _, errors = compiler.communicate()
        if compiler.returncode:
            raise RuntimeError(f"g++ refused {compiler.args!r}:\n{errors[:4000]}")
