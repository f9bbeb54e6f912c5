"""Emission: a Program becomes one CUDA source, and that a cubin."""

from amk.emit.compile import CompiledKernel, compile_cubin
from amk.emit.source import emit_source

__all__ = ["CompiledKernel", "compile_cubin", "emit_source"]
