"""CUDA source -> cubin with NVRTC, which comes from pip: no CUDA toolkit, no host compiler, no GPU."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amk.emit.source import KERNEL_NAME
from amk.errors import DeviceError, RejectedProgramError
from schedule_ir.target import Target

_OPTIONS = (
    "--std=c++17",
    "-default-device",
    "--device-int128",
    "--extra-device-vectorization",
    "--ptxas-options=-v",
    "--no-cache",
)


@dataclass(frozen=True)
class CompiledKernel:
    """A cubin for one architecture and the compiler that made it."""

    cubin: bytes
    nvrtc: str
    log: str
    resources: dict[str, int]
    """"registers" per thread, "stack_bytes", "spill_bytes" (stores and loads) of the decode kernel."""

    @property
    def sha256(self) -> str:
        """Hash of the cubin."""
        return hashlib.sha256(self.cubin).hexdigest()


def kernel_folder() -> Path:
    """Where the CUDA headers are: inside the installed package, or beside it in a source tree."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_kernels", package.parent / "kernels"):
        if (folder / "megakernel.cuh").is_file():
            return folder
    raise RejectedProgramError(f"the CUDA headers are missing from {package}; install amk again")


def kernel_sources_sha256() -> str:
    """Hash over all CUDA headers, so that a cached cubin is never older than its source."""
    digest = hashlib.sha256()
    for path in sorted(kernel_folder().glob("*.cuh")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def compile_cubin(source: str, target: Target, name: str = "amk.cu") -> CompiledKernel:
    """Compile `source` for the architecture of `target`.

    Raises DeviceError if NVRTC cannot be loaded, RejectedProgramError with the compiler's log if it refuses.
    """
    nvrtc = _load_nvrtc()
    program = _check(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    arch = target.nvrtc_arch.removeprefix("sm_")
    options = [*_OPTIONS, f"--gpu-architecture=sm_{arch}", f"-I{kernel_folder()}"]
    encoded = [option.encode() for option in options]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    log = _text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RejectedProgramError(f"NVRTC refused the generated source for {target.arch}:\n{log}")
    size = _check(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
    cubin = bytearray(size)
    _check(nvrtc, nvrtc.nvrtcGetCUBIN(program, cubin))
    nvrtc.nvrtcDestroyProgram(program)
    major, minor = _version(nvrtc)
    return CompiledKernel(bytes(cubin), f"{major}.{minor}", log, _resources(log))


def _resources(log: str) -> dict[str, int]:
    """What ptxas says of the decode kernel in its verbose log."""
    part = log[log.find(f"'{KERNEL_NAME}'") :]
    registers = re.search(r"Used (\d+) registers", part)
    stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part)
    if not registers or not stack:
        raise RejectedProgramError(f"the compiler's log names no resources of {KERNEL_NAME}:\n{log}")
    frame, stores, loads = (int(value) for value in stack.groups())
    return {"registers": int(registers[1]), "stack_bytes": frame, "spill_bytes": stores + loads}


def _load_nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        _version(nvrtc)
    except Exception as error:  # the binding raises several kinds where the library is missing
        raise DeviceError(f"NVRTC cannot be loaded ({error}); pip install nvidia-cuda-nvrtc cuda-python") from error
    return nvrtc


def _version(nvrtc: Any) -> tuple[int, int]:
    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


def _check(nvrtc: Any, result: tuple[Any, ...]) -> Any:
    if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(f"NVRTC call failed: {result[0]!r}")
    return result[1] if len(result) > 1 else None


def _text(nvrtc: Any, program: Any, size_of: Any, read: Any) -> str:
    size = _check(nvrtc, size_of(program))
    buffer = bytearray(size)
    _check(nvrtc, read(program, buffer))
    return bytes(buffer).rstrip(b"\0").decode(errors="replace").strip()
