"""Schedules that a search found to be faster than the default: a table in tuned.json, an entry per GPU and shape.

An entry is data with its evidence: the knobs, and what was measured, where, when, with which sources. `amk research
adopt` writes entries, `amk build` looks them up. Whatever the table says is checked when it is read, and the schedule
that comes of it is proved like any other.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

from amk.errors import ArtifactError
from amk.lower import Knobs
from amk.model.graph import ModelGraph, TensorRef

FORMAT = 1
KV_DTYPES = ("fp16", "bf16", "fp32")
_EVIDENCE: Mapping[str, type | tuple[type, ...]] = {
    "factor": float,
    "low": float,
    "high": float,
    "alpha": float,
    "pairs": int,
    "loads": int,
    "default": dict,
    "workload": list,
    "max_seq": int,
    "model": str,
    "date": str,
    "commit": str,
    "amk": str,
    "kernels_sha256": str,
    "machine": dict,
}
"""What an entry has to say of its measurement, and as what."""


@dataclass(frozen=True)
class Entry:
    """Knobs for one GPU, shape and K/V type. `evidence` says what was measured (see `_EVIDENCE`).

    `evidence["factor"]` is how many times as fast as the setting `evidence["default"]`, [`low`, `high`] its confidence
    interval at level 1 - `alpha`, over the weighted positions of `workload`.
    """

    gpu: str
    shape: Mapping[str, Any]
    kv_dtype: str
    knobs: Mapping[str, int]
    evidence: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is for."""
        return key_of(self.gpu, self.shape, self.kv_dtype)

    @property
    def sha256(self) -> str:
        """Hash of all of it (hex)."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def as_knobs(self) -> Knobs:
        """As the lowering takes them; a knob that the entry does not name has its default."""
        return Knobs(**self.knobs)

    def provenance(self) -> dict[str, Any]:
        """For a manifest and a certificate."""
        return {"sha256": self.sha256, **self.evidence}


def key_of(gpu: str, shape: Mapping[str, Any], kv_dtype: str) -> tuple[str, str, str]:
    """What an entry is for, as a key."""
    return gpu, json.dumps(dict(shape), sort_keys=True), kv_dtype


def describe(evidence: Mapping[str, Any]) -> str:
    """An entry's evidence in a few words."""
    positions = ", ".join(f"{point['pos']:,}" for point in evidence["workload"])
    interval = f"{evidence['factor']:.3f}x [{evidence['low']:.3f}, {evidence['high']:.3f}]"
    return f"{interval} over the default before it at position {positions}, measured {evidence['date']}"


def shape_of(graph: ModelGraph) -> dict[str, Any]:
    """What of a model decides its schedule: sizes, and a hash of which ops its layers take. No weights, no names."""
    structure = [graph.activation, bool(graph.score_cap), bool(graph.logits_cap), graph.rope.dim, _plain(graph.head)]
    layers = [_plain(layer) for layer in graph.layers]
    return {
        "hidden": graph.hidden,
        "intermediate": graph.intermediate,
        "layers": len(graph.layers),
        "heads": graph.heads,
        "kv_heads": graph.kv_heads,
        "head_dim": graph.head_dim,
        "vocab": graph.vocab,
        "tied_head": graph.tied_head,
        "structure": hashlib.sha256(json.dumps([structure, layers]).encode()).hexdigest()[:16],
    }


def _plain(value: Any) -> Any:
    """A part of a graph without its names: shapes of tensors, and every other field as it is."""
    if isinstance(value, TensorRef):
        return list(value.shape)
    if is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in fields(value)]
    return value


# Looking up


def shipped() -> tuple[Entry, ...]:
    """The entries that come with amk. Raises ArtifactError if the table is damaged."""
    return parse(files("amk").joinpath("tuned.json").read_text(encoding="utf-8"), "amk/tuned.json")


def find(gpu: str, shape: Mapping[str, Any], kv_dtype: str, entries: Sequence[Entry] | None = None) -> Entry | None:
    """The entry of exactly this GPU, shape and K/V type, or None."""
    table = shipped() if entries is None else entries
    return next((entry for entry in table if entry.key == key_of(gpu, shape, kv_dtype)), None)


# Reading and writing


def parse(text: str, where: str) -> tuple[Entry, ...]:
    """The entries of a table. Raises ArtifactError naming the entry and the field that is wrong."""
    try:
        data = json.loads(text, parse_constant=_no_constant)
        if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("entries"), list):
            raise ValueError(f"not a table of format {FORMAT}")
        entries = tuple(_numbered(index, item) for index, item in enumerate(data["entries"]))
        _check_unique(entries)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where}: {error}; install amk again, or build with --no-tuned") from error
    return entries


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of a table")


def _numbered(index: int, data: Any) -> Entry:
    try:
        return entry_of(data)
    except ValueError as error:
        raise ValueError(f"entry {index}: {error}") from error


def _check_unique(entries: Sequence[Entry]) -> None:
    keys = [entry.key for entry in entries]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise ValueError(f"entry {index}: is for the same GPU, shape and K/V type as an earlier one")


def entry_of(data: Any) -> Entry:
    """JSON data as an entry, every field checked. Raises ValueError naming the field, its value and what is due."""
    if not isinstance(data, dict) or set(data) != {field.name for field in fields(Entry)}:
        raise ValueError(f"has {sorted(data) if isinstance(data, dict) else data!r}, not the fields of an entry")
    gpu, kv_dtype = data["gpu"], data["kv_dtype"]
    if not isinstance(gpu, str) or not gpu:
        raise ValueError(f"gpu {gpu!r} is no name")
    if kv_dtype not in KV_DTYPES:
        raise ValueError(f"kv_dtype {kv_dtype!r} is not one of {', '.join(KV_DTYPES)}")
    _check_shape(data["shape"])
    _check_knobs(data["knobs"])
    _check_evidence(data["evidence"])
    return Entry(gpu, data["shape"], kv_dtype, data["knobs"], data["evidence"])


_SIZES = ("hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "vocab")


def _check_shape(shape: Any) -> None:
    if not isinstance(shape, dict) or set(shape) != {*_SIZES, "tied_head", "structure"}:
        raise ValueError(f"shape {shape!r} is none")
    for name in _SIZES:
        if not _is_int(shape[name]) or shape[name] < 1:
            raise ValueError(f"shape: {name} {shape[name]!r} is no size")
    if not isinstance(shape["tied_head"], bool) or not _is_hex(shape["structure"], 16):
        raise ValueError(f"shape: tied_head {shape['tied_head']!r} or structure {shape['structure']!r} is none")


def _check_knobs(knobs: Any) -> None:
    known = {field.name: field.metadata["values"] for field in fields(Knobs)}
    if not isinstance(knobs, dict) or not knobs:
        raise ValueError(f"knobs {knobs!r} are no setting")
    for name, value in knobs.items():
        if name not in known:
            raise ValueError(f"no knob called {name!r}; there are {', '.join(known)}")
        if not _is_int(value) or value not in known[name]:
            raise ValueError(f"{name} = {value!r} is not one of {', '.join(map(str, known[name]))}")


def _check_evidence(evidence: Any) -> None:
    if not isinstance(evidence, dict) or set(evidence) != set(_EVIDENCE):
        raise ValueError(f"evidence has to say {', '.join(_EVIDENCE)}")
    for name, kind in _EVIDENCE.items():
        if not isinstance(evidence[name], kind) or isinstance(evidence[name], bool):
            raise ValueError(f"evidence: {name} {evidence[name]!r} is of the wrong type")
    low, factor, high = (evidence[name] for name in ("low", "factor", "high"))
    if not (1.0 < low <= factor <= high and math.isfinite(high)):
        raise ValueError(f"evidence: {factor} [{low}, {high}] is no improvement")
    if not 1 <= evidence["loads"] <= evidence["pairs"] or not 0 < evidence["alpha"] < 1 or evidence["max_seq"] < 1:
        raise ValueError("evidence: pairs, loads, alpha or max_seq is out of range")
    if not _is_hex(evidence["kernels_sha256"], 64) or not _is_hex(evidence["commit"].removesuffix("+"), 40):
        raise ValueError("evidence: kernels_sha256 or commit is no hash")
    date.fromisoformat(evidence["date"])
    _check_workload(evidence["workload"])


def _check_workload(points: Sequence[Any]) -> None:
    for point in points:
        if not isinstance(point, dict) or not _is_int(point.get("pos")) or point["pos"] < 0:
            raise ValueError(f"evidence: point {point!r} of the workload has no position")
    if not points:
        raise ValueError("evidence: the workload has no points")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_hex(value: Any, digits: int) -> bool:
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", value) is not None


def with_entry(entries: Sequence[Entry], entry: Entry) -> tuple[Entry, ...]:
    """The entries with this one in the place of what it replaces."""
    others = [other for other in entries if other.key != entry.key]
    return (*others, entry)


def write_table(path: Path, entries: Sequence[Entry]) -> None:
    """Write a table, after reading back what is about to be written."""
    text = json.dumps({"format": FORMAT, "entries": [asdict(entry) for entry in entries]}, indent=1) + "\n"
    parse(text, str(path))
    path.write_text(text, encoding="utf-8")
