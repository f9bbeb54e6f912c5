"""Program <-> device tables. What is proved, simulated and executed is the decoded tables.

Tables: `header`, everything that is not a task, as JSON data; `records`, int32 [tasks, 12], word 0 the opcode and
then the op's fields (rest zero); `ranges`, int32 [sms, 3 lanes, 2 sections, 2], first and last+1 record.
Records of a lane lie together, body before head, SM by SM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from schedule_ir.layout import RECORD_WORDS
from schedule_ir.op import Lane
from schedule_ir.program import Buffer, PackedVector, Program, Section, Space, Task, TensorTiles, Variant
from schedule_ir.registry import REGISTRY
from schedule_ir.target import Target

FORMAT = 4
LANES = (Lane.STREAM, Lane.COMPUTE, Lane.EPILOGUE)
SECTIONS = (Section.BODY, Section.HEAD)


class MalformedTablesError(ValueError):
    """The tables do not describe a Program; the message names the record or field and its value."""


@dataclass(frozen=True)
class Tables:
    """What the device executes. `header` is JSON-serialisable."""

    header: Mapping[str, Any]
    records: npt.NDArray[np.int32]
    ranges: npt.NDArray[np.int32]


def encode(program: Program) -> Tables:
    """The tables of a Program. Raises MalformedTablesError for a task that its op does not allow."""
    records: list[list[int]] = []
    ranges = np.zeros((program.sms, len(LANES), len(SECTIONS), 2), np.int32)
    for sm in range(program.sms):
        for i, lane in enumerate(LANES):
            for j, section in enumerate(SECTIONS):
                begin = len(records)
                records += [_record(program.variants, lane, t) for t in program.lanes.get((sm, lane, section), ())]
                ranges[sm, i, j] = begin, len(records)
    table = np.array(records, np.int64).reshape(-1, RECORD_WORDS)
    if np.abs(table).max(initial=0) > np.iinfo(np.int32).max:
        raise MalformedTablesError(f"record value {np.abs(table).max()} does not fit 32 bits; use a smaller max_seq")
    return Tables(header_of(program), table.astype(np.int32), ranges)


def _record(variants: tuple[Variant, ...], lane: Lane, task: Task) -> list[int]:
    if not 0 <= task.opcode < len(variants):
        raise MalformedTablesError(f"opcode {task.opcode} is not one of {len(variants)} variants")
    op = variants[task.opcode].spec
    if op.lane is not lane:
        raise MalformedTablesError(f"op {op.name} belongs to lane {op.lane}, not {lane}")
    if len(task.args) != len(op.fields):
        raise MalformedTablesError(f"op {op.name} takes {len(op.fields)} fields, not {len(task.args)}")
    return [task.opcode, *task.args] + [0] * (RECORD_WORDS - 1 - len(task.args))


def header_of(program: Program) -> dict[str, Any]:
    """Everything of a Program but its tasks, as JSON data (lists, no tuples: equal to what JSON reads back)."""
    header: dict[str, Any] = _lists(_header(program))
    return header


def _lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lists(item) for key, item in value.items()}
    return [_lists(item) for item in value] if isinstance(value, (list, tuple)) else value


def _header(program: Program) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "target": asdict(program.target),
        "config": dict(program.config),
        "scalars": dict(program.scalars),
        "kv_dtype": program.kv_dtype,
        "buffers": [asdict(buffer) for buffer in program.buffers],
        "variants": [{"op": v.op, "constants": dict(v.constants)} for v in program.variants],
        "tiles": [asdict(tiles) for tiles in program.tiles],
        "norms": list(program.norms),
        "biases": [asdict(bias) for bias in program.biases],
        "knobs": dict(program.knobs),
    }


def decode(tables: Tables) -> Program:
    """The Program that tables describe. Raises MalformedTablesError; encode(decode(t)) equals t."""
    try:
        fields = _decode_header(tables.header)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedTablesError(f"program header is malformed: {error!r}") from error
    variants: tuple[Variant, ...] = fields["variants"]
    sms = fields["config"].get("sms")
    if tables.ranges.shape != (sms, len(LANES), len(SECTIONS), 2):
        raise MalformedTablesError(f"ranges have shape {tables.ranges.shape}, not ({sms}, 3, 2, 2)")
    if tables.records.ndim != 2 or tables.records.shape[1] != RECORD_WORDS:
        raise MalformedTablesError(f"records have shape {tables.records.shape}, not (tasks, {RECORD_WORDS})")
    return Program(lanes=_decode_lanes(tables, variants), **fields)


def _decode_lanes(tables: Tables, variants: tuple[Variant, ...]) -> dict[tuple[int, Lane, Section], tuple[Task, ...]]:
    rows = tables.records.tolist()
    flat = tables.ranges.reshape(-1, 2).tolist()
    lanes: dict[tuple[int, Lane, Section], tuple[Task, ...]] = {}
    expected = 0
    for index, (begin, end) in enumerate(flat):
        if begin != expected or end < begin or end > len(rows):
            raise MalformedTablesError(f"range {index} is [{begin}, {end}) where {expected} is due")
        sm, rest = divmod(index, len(LANES) * len(SECTIONS))
        lane, section = LANES[rest // len(SECTIONS)], SECTIONS[rest % len(SECTIONS)]
        lanes[sm, lane, section] = tuple(_task(variants, lane, n, rows[n]) for n in range(begin, end))
        expected = end
    if expected != len(rows):
        raise MalformedTablesError(f"{len(rows) - expected} records belong to no lane")
    return lanes


def _task(variants: tuple[Variant, ...], lane: Lane, index: int, row: list[int]) -> Task:
    if not 0 <= row[0] < len(variants):
        raise MalformedTablesError(f"record {index}: opcode {row[0]} is not one of {len(variants)} variants")
    op = variants[row[0]].spec
    count = len(op.fields)
    if op.lane is not lane:
        raise MalformedTablesError(f"record {index}: op {op.name} belongs to lane {op.lane}, not {lane}")
    if any(row[1 + count :]):
        raise MalformedTablesError(f"record {index}: op {op.name} has {count} fields, the words after them are not 0")
    return Task(row[0], tuple(row[1 : 1 + count]))


def _decode_header(header: Mapping[str, Any]) -> dict[str, Any]:
    if header["format"] != FORMAT:
        raise ValueError(f"format {header['format']!r}, this version reads {FORMAT}")
    return {
        "target": Target(**header["target"]),
        "config": {str(k): _integer(v) for k, v in header["config"].items()},
        "scalars": {str(k): float(v) for k, v in header["scalars"].items()},
        "kv_dtype": str(header["kv_dtype"]),
        "buffers": tuple(_buffer(b) for b in header["buffers"]),
        "variants": tuple(_variant(v) for v in header["variants"]),
        "tiles": tuple(_tiles(t) for t in header["tiles"]),
        "norms": tuple(str(name) for name in header["norms"]),
        "biases": tuple(_bias(b) for b in header["biases"]),
        "knobs": {str(k): _integer(v) for k, v in header["knobs"].items()},
    }


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not an integer")
    return value


def _buffer(data: Mapping[str, Any]) -> Buffer:
    return Buffer(
        str(data["name"]), Space(data["space"]), _integer(data["offset"]), _integer(data["size"]),
        _integer(data["element_bytes"]),
    )  # fmt: skip


def _variant(data: Mapping[str, Any]) -> Variant:
    if data["op"] not in REGISTRY:
        raise ValueError(f"op {data['op']!r} is unknown")
    constants = {str(k): _integer(v) for k, v in data["constants"].items()}
    if tuple(constants) != REGISTRY[data["op"]].constants:
        raise ValueError(f"op {data['op']} takes constants {REGISTRY[data['op']].constants}, not {tuple(constants)}")
    return Variant(data["op"], constants)


def _bias(data: Mapping[str, Any]) -> PackedVector:
    return PackedVector(
        tensors=tuple(str(t) for t in data["tensors"]),
        interleaved=bool(data["interleaved"]),
        rows=tuple(_integer(r) for r in data["rows"]),
        offset=_integer(data["offset"]),
    )


def _tiles(data: Mapping[str, Any]) -> TensorTiles:
    return TensorTiles(
        name=str(data["name"]),
        tensors=tuple(str(t) for t in data["tensors"]),
        interleaved=bool(data["interleaved"]),
        rows=tuple(_integer(r) for r in data["rows"]),
        columns=(_integer(data["columns"][0]), _integer(data["columns"][1])),
        ksteps=_integer(data["ksteps"]),
        sms=tuple(_integer(s) for s in data["sms"]),
        offsets=tuple(_integer(o) for o in data["offsets"]),
        unit_rows=_integer(data["unit_rows"]),
        first_row=_integer(data["first_row"]),
    )


def to_json(tables: Tables) -> str:
    """Tables as one JSON text."""
    lists = {"records": tables.records.tolist(), "ranges": tables.ranges.tolist()}
    return json.dumps({"header": tables.header, **lists}, separators=(",", ":"))


def from_json(text: str) -> Tables:
    """Tables of a JSON text. Raises MalformedTablesError."""
    try:
        data = json.loads(text)
        records = np.array(data["records"], np.int64).reshape(-1, RECORD_WORDS)
        if np.abs(records).max(initial=0) > np.iinfo(np.int32).max:
            raise ValueError("a record value does not fit 32 bits")
        return Tables(data["header"], records.astype(np.int32), np.array(data["ranges"], np.int32))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedTablesError(f"program is not readable: {error}") from error
