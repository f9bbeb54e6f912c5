"""What workers keep on disk between processes: cubins by their source, oracle answers by their question."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.emit import emit_source
from amk.emit.compile import CompiledKernel, compile_cubin, kernel_sources_sha256
from amk.model.source import Model
from amk.verify.gates import OracleFunction, plain_oracle
from schedule_ir.program import Program
from schedule_ir.target import Target


class CompileCache:
    """Compiles, or takes the cubin that the same compiler made of an equal source: many schedules share one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, program: Program) -> CompiledKernel:
        """The kernel. Raises RejectedProgramError if the compiler refuses it."""
        return self.source(emit_source(program), program.target)

    def source(self, source: str, target: Target) -> CompiledKernel:
        """The kernel of a source. Raises RejectedProgramError if the compiler refuses it."""
        path = self._folder / _hash("\0".join((kernel_sources_sha256(), _nvrtc(), target.nvrtc_arch, source)))
        if (cached := _read_kernel(path)) is not None:
            return cached
        kernel = compile_cubin(source, target)
        write_whole(path.with_suffix(".cubin"), kernel.cubin)
        facts = {"nvrtc": kernel.nvrtc, "resources": kernel.resources}
        write_whole(path.with_suffix(".json"), json.dumps(facts).encode())
        return kernel


def _nvrtc() -> str:
    """The compiler's version: a folder may travel to a machine that has another."""
    try:
        from cuda.bindings import nvrtc

        return repr(nvrtc.nvrtcVersion()[1:])
    except (ImportError, RuntimeError):
        return "none"


def _read_kernel(path: Path) -> CompiledKernel | None:
    """The JSON is written last: without it the cubin may be missing."""
    try:
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return CompiledKernel(path.with_suffix(".cubin").read_bytes(), facts["nvrtc"], "", facts["resources"])
    except (OSError, ValueError, KeyError):
        return None


def cached_oracle(folder: Path, kv_dtype: str) -> OracleFunction:
    """The oracle, which asks the disk first: its answers do not depend on the candidate."""
    compute = plain_oracle(kv_dtype)

    def answer(model: Model, ids: Sequence[int], positions: Sequence[int]) -> npt.NDArray[Any]:
        graph = _hash(repr(model.graph))
        question = json.dumps([graph, model.checkpoint.digest, kv_dtype, list(ids), list(positions)])
        path = folder / f"{_hash(question)}.npy"
        if path.is_file():
            stored: npt.NDArray[Any] = np.load(path, allow_pickle=False)
            return stored
        logits = compute(model, ids, positions).astype(np.float32)
        data = io.BytesIO()
        np.save(data, logits, allow_pickle=False)
        write_whole(path, data.getvalue())
        return logits

    return answer


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    Path(file.name).replace(path)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
