"""Whether NVRTC works here: compiles a one-line kernel, which needs no GPU and no driver."""

from __future__ import annotations

from typing import Any

from amk.errors import DeviceError

_SOURCE = b'extern "C" __global__ void probe(int* out) { *out = 1; }'


def compile_probe(arch: str) -> int:
    """Compile a kernel for `arch` ("sm_90a") and return the size of its cubin; DeviceError if that does not work."""
    nvrtc = _library()
    program = _call(nvrtc.nvrtcCreateProgram(_SOURCE, b"probe.cu", 0, [], []), arch)
    try:
        _call(nvrtc.nvrtcCompileProgram(program, 1, [f"-arch={arch}".encode()]), arch)
        return int(_call(nvrtc.nvrtcGetCUBINSize(program), arch))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _library() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # no cuda-python; no libnvrtc
        raise DeviceError(f"NVRTC cannot be loaded: {error}; pip install 'nvidia-cuda-nvrtc>=13,<14'") from error
    return nvrtc


def _call(answer: tuple[Any, ...], arch: str) -> Any:
    status, *values = answer
    if int(status) != 0:
        raise DeviceError(f"NVRTC {status.name} for {arch}; amk needs NVRTC 13, of this CPU's architecture")
    return values[0] if values else None
