"""The whole pipe as one list of calls: checkpoint -> graph -> schedule -> proof -> source -> cubin -> artifact."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import amk
from amk.artifact import FORMAT, MANIFEST, Artifact, check_replaceable, read_artifact, read_manifest, write_artifact
from amk.code_digest import builder_sha256
from amk.emit import CompiledKernel, compile_cubin, emit_source
from amk.emit.compile import kernel_sources_sha256
from amk.errors import ArtifactError, DeviceError, RejectedProgramError, UsageError
from amk.gpus import resolve
from amk.lower import Knobs, lower
from amk.model.source import Model, open_model
from amk.progress import SILENT, Progress
from amk.tuned import Entry, find, shape_of
from schedule_ir.codec import Tables, encode
from schedule_ir.layout import KSTEP, KV_ELEMENT_BYTES, ceil_to
from schedule_ir.program import Program
from schedule_ir.target import Target

DEFAULT_MAX_SEQ = 8192
"""Sequence length where none is asked for (the model's own if that is shorter): K/V memory grows with it."""


def build(
    model: str | Path,
    *,
    gpu: str = "auto",
    max_seq: int | None = None,
    out: str | Path | None = None,
    kv_dtype: str = "fp16",
    random_weights: int | None = None,
    force: bool = False,
    knobs: Knobs | None = None,
    tuned: bool = True,
    progress: Progress | None = None,
) -> Artifact:
    """Build an artifact of `model` for `gpu` at `out`; an artifact there of the same inputs is returned as it is.

    `max_seq` is the longest sequence in tokens, `kv_dtype` one of fp16, bf16, fp32. The schedule is that of `knobs`;
    without them the one that was tuned for this GPU and shape (`amk.tuned`), unless `tuned` is false, or the default.
    Raises AmkError: of the model (UnsupportedModelError), the schedule (RejectedProgramError), the target (UsageError,
    DeviceError) or the folder (ArtifactError).
    """
    show = progress or SILENT
    target = resolve(gpu).as_target()
    with show.step("Reading the checkpoint"):
        opened = open_model(model, random_weights)
    length = _sequence_length(opened, max_seq)
    entry = find(target.name, shape_of(opened.graph), kv_dtype) if tuned and knobs is None else None
    chosen = entry.as_knobs() if entry else knobs or Knobs()
    key = _build_key(opened, target, length, kv_dtype, chosen, entry)
    path = Path(out) if out is not None else Path(f"{opened.path.stem}-{target.name}")
    cached = None if force else _cached(path, key)
    if cached is not None:
        return cached
    check_replaceable(path)
    _check_memory(opened, target, length, kv_dtype)
    with show.step("Scheduling"):
        program = _lower(opened, target, length, kv_dtype, chosen, entry)
        tables = encode(program)
    with show.step("Compiling the kernel"):
        source = emit_source(program)
        kernel = compile_cubin(source, target)
    with show.step("Proving the schedule"):
        certificate = prove(tables, opened, target, kernel) | {"tuned": key["tuned"]}
    return write_artifact(path, _manifest(opened, kernel, key), tables, source, kernel.cubin, certificate)


def _lower(model: Model, target: Target, max_seq: int, kv_dtype: str, knobs: Knobs, entry: Entry | None) -> Program:
    """The schedule. A tuned setting that does not fit this length is told as such."""
    try:
        return lower(model.graph, target, max_seq, kv_dtype, knobs)
    except RejectedProgramError as error:
        if entry is None:
            raise
        raise RejectedProgramError(
            f"{error}; its knobs were tuned for this shape; --no-tuned takes the default"
        ) from error


def prove(tables: Tables, model: Model, target: Target, kernel: CompiledKernel) -> dict[str, Any]:
    """The validator's certificate. Raises RejectedProgramError with its report if it refuses the schedule."""
    import validator

    resources = {**kernel.resources, "shared_bytes": tables.header["config"]["shared_bytes"]}
    report = validator.validate(tables, model.graph, target, kernel=resources)
    if not report.ok:
        raise RejectedProgramError(report.text())
    return dict(validator.certificate(report, tables, kernel.sha256, resources))


def _sequence_length(model: Model, max_seq: int | None) -> int:
    own = model.graph.max_position
    if max_seq is None:
        return min(own, DEFAULT_MAX_SEQ)
    if max_seq > own and model.graph.rope.kind != "dynamic":
        raise UsageError(f"--max-seq {max_seq}: the model was made for at most {own} positions; ask for that or fewer")
    return max_seq


def _check_memory(model: Model, target: Target, max_seq: int, kv_dtype: str) -> None:
    """Refuse a model that the target cannot hold, before anything takes long."""
    graph = model.graph
    weights = sum(2 * math.prod(ref.shape) for ref in graph.tensors())
    row = 2 * ceil_to(graph.head_dim, KSTEP) * KV_ELEMENT_BYTES[kv_dtype]
    kv = len(graph.layers) * graph.kv_heads * max_seq * row
    if weights + kv > target.memory_bytes:
        raise DeviceError(
            f"{(weights + kv) / 2**30:.1f} GiB of GPU memory needed (weights {weights / 2**30:.1f}, K/V of {max_seq} "
            f"positions {kv / 2**30:.1f}), {target.name} has {target.memory_bytes / 2**30:.1f}; "
            "use a GPU with more, or a smaller --max-seq"
        )


def _build_key(
    model: Model, target: Target, max_seq: int, kv_dtype: str, knobs: Knobs, entry: Entry | None
) -> dict[str, Any]:
    """Everything that the artifact depends on; equal keys give equal artifacts."""
    return {
        "amk": amk.__version__,
        "kernels_sha256": kernel_sources_sha256(),
        "builder_sha256": builder_sha256(),
        "model_digest": model.checkpoint.digest,
        "graph_digest": model.graph.digest,
        "target": asdict(target),
        "max_seq": max_seq,
        "kv_dtype": kv_dtype,
        "knobs": asdict(knobs),
        "tuned": None if entry is None else entry.provenance(),
    }


def _manifest(model: Model, kernel: CompiledKernel, key: dict[str, Any]) -> dict[str, Any]:
    return {
        "build": key,
        "model": {
            "path": str(_absolute(model.path)),
            "kind": model.kind,
            "architecture": model.graph.architecture,
            "random_seed": getattr(model.checkpoint, "seed", None),
        },
        "compiler": {"nvrtc": kernel.nvrtc, "resources": kernel.resources},
    }


def _absolute(path: Path) -> Path:
    """The absolute path, its last part as it was given: in the hub's cache a file is a link to one without a suffix."""
    return path.parent.resolve() / path.name


def _cached(path: Path, key: dict[str, Any]) -> Artifact | None:
    """The artifact at `path` if it was built from the same inputs and is intact."""
    if not (path / MANIFEST).is_file():
        return None
    try:
        manifest = read_manifest(path)
        same = manifest["format"] == FORMAT and manifest.get("build") == key
        return read_artifact(path) if same else None
    except ArtifactError:
        return None
