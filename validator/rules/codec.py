"""Rule 1: the tables decode, and encoding what was decoded gives the same tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from schedule_ir.codec import LANES, SECTIONS, MalformedTablesError, Tables, decode
from schedule_ir.layout import RECORD_WORDS
from schedule_ir.program import Program
from schedule_ir.target import Target
from validator.columns import Columns, Ints
from validator.report import Violation

MAX_SMS = 4096
MAX_SPLITS = 256
INT32 = 2**31 - 1

POSITIVE = (
    "sms", "layers", "hidden", "hidden_padded", "intermediate", "heads", "kv_heads", "head_dim", "head_dim_padded",
    "rotary_dim", "vocab", "max_seq", "max_seq_padded", "kv_element_bytes", "phases", "partial_stride", "max_splits",
    "min_split_rows", "queries", "compute_warps", "slot_bytes", "ring_stages", "reduce_slots", "in_flight",
    "in_flight_low", "activation_ksteps", "shared_bytes", "packets", "rope_tables",
)  # fmt: skip
KNOWN_OPS = frozenset((
    "copy_tape", "copy_kv", "kv_acquire", "embed_norm", "add_norm", "add_post_norm", "gather", "gemv", "gemv_park",
    "gemv_resume", "attend", "append", "combine", "sample", "publish", "head", "publish_best", "kv_release",
))  # fmt: skip
MAY_BE_ZERO = ("stocked", "loaded_tiles", "tied_head", "activation", "accumulators")
LIMITS = {
    "scaled": (0, 1), "gated": (0, 1), "biased": (0, 1), "window": (0, INT32), "rope": (0, INT32), "qk_norm": (0, 2),
    "resume": (0, 1),
}  # fmt: skip
"""Least and most value of the constants that may be 0."""


def check(tables: Tables) -> tuple[Columns | None, list[Violation]]:
    """Theorem: the columns returned are exactly what the device reads, and every value in them is one that the ops,
    the configuration and 32-bit words allow. No columns where they would not make sense.
    """
    try:
        problems = list(_array_problems(tables))
        if problems:
            return None, problems
        program = _decode_header(tables)
        problems = [*_config_problems(program), *_header_problems(program)]
        columns, more = _columns(tables, program) if not problems else (None, [])
        problems += more
        if columns is not None and not problems:
            problems += [*_round_trip(tables.header, program), *_argument_problems(columns)]
    except (
        MalformedTablesError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        ArithmeticError,
    ) as error:
        return None, [_broken(f"tables do not decode: {error}")]
    except RecursionError:
        return None, [_broken("the header is nested too deeply to be read")]
    return (None if problems else columns), problems


def _broken(message: str, witness: str = "") -> Violation:
    return Violation(1, message, witness)


def _array_problems(tables: Tables) -> Iterator[Violation]:
    for name, array in (("records", tables.records), ("ranges", tables.ranges)):
        if not isinstance(array, np.ndarray) or array.dtype != np.int32:
            kind = getattr(array, "dtype", type(array).__name__)
            yield _broken(f"{name} are {kind}, not int32: the device reads 32-bit words")
    header: object = tables.header
    if not isinstance(header, Mapping):
        yield _broken(f"header is a {type(header).__name__}, not a mapping")
    elif isinstance(tables.records, np.ndarray) and (
        tables.records.ndim != 2 or tables.records.shape[1] != RECORD_WORDS
    ):
        yield _broken(f"records have shape {tables.records.shape}, not (tasks, {RECORD_WORDS})")


def _decode_header(tables: Tables) -> Program:
    """The Program without its tasks."""
    shape = tables.ranges.shape
    if len(shape) != 4 or shape[1:] != (len(LANES), len(SECTIONS), 2) or shape[0] > MAX_SMS:
        raise MalformedTablesError(f"ranges have shape {shape}, not (sms up to {MAX_SMS}, 3, 2, 2)")
    no_tasks = Tables(tables.header, np.zeros((0, RECORD_WORDS), np.int32), np.zeros(shape, np.int32))
    return decode(no_tasks)


def _config_problems(program: Program) -> Iterator[Violation]:
    config = program.config
    for name in (*POSITIVE, *MAY_BE_ZERO):
        low = 0 if name in MAY_BE_ZERO else 1
        value = config.get(name)
        if value is None:
            yield _broken(f"config lacks {name!r}; a Program of this version has it")
        elif not low <= value <= INT32:
            yield _broken(f"config {name} = {value} is not between {low} and {INT32}")
    if config.get("max_splits", 0) > MAX_SPLITS:
        yield _broken(f"config max_splits = {config['max_splits']}: more than {MAX_SPLITS} are not modelled")
    for name, number in program.scalars.items():
        if not math.isfinite(number) or number <= 0:
            yield _broken(f"scalar {name} = {number} is not a finite positive number")
    yield from (_broken(f"scalars lack {name!r}") for name in ("eps", "attention_scale") if name not in program.scalars)


def _header_problems(program: Program) -> Iterator[Violation]:
    target = program.target
    for item in fields(Target):
        value = getattr(target, item.name)
        kind = str if item.type == "str" else (int, float)
        if not isinstance(value, kind) or isinstance(value, bool):
            yield _broken(f"target {item.name} = {value!r} is not a {item.type}")
        elif not isinstance(value, str) and not (math.isfinite(value) and value > 0):
            yield _broken(f"target {item.name} = {value} is not a positive number")
    for buffer in program.buffers:
        if buffer.offset < 0 or buffer.size < 0 or buffer.element_bytes < 1:
            yield _broken(
                f"buffer {buffer.name!r}: offset {buffer.offset}, {buffer.size} x {buffer.element_bytes} bytes"
            )
    for variant in program.variants:
        if variant.op not in KNOWN_OPS:
            yield _broken(f"op {variant.op!r} is not modelled by this validator; teach it the op before using it")
        for name, value in variant.constants.items():
            low, high = LIMITS.get(name, (1, INT32))
            if not low <= value <= high:
                yield _broken(f"op {variant.op}: constant {name} = {value} is not between {low} and {high}")


def _columns(tables: Tables, program: Program) -> tuple[Columns | None, list[Violation]]:
    """Theorem: the ranges partition the records, lane by lane in the canonical order."""
    flat = tables.ranges.reshape(-1, 2).astype(np.int64)
    begins, ends = flat[:, 0], flat[:, 1]
    due = np.concatenate(([0], ends[:-1]))
    wrong = np.nonzero((begins != due) | (ends < begins) | (ends > len(tables.records)))[0]
    if len(wrong) or int(ends[-1]) != len(tables.records):
        at = int(wrong[0]) if len(wrong) else len(flat) - 1
        return None, [
            _broken(f"range {at} is [{begins[at]}, {ends[at]}); due is {due[at]}, records {len(tables.records)}")
        ]
    words = tables.records.astype(np.int64)
    sizes = (ends - begins).reshape(program.sms, len(LANES), len(SECTIONS))
    owner = np.repeat(np.arange(len(flat)), ends - begins)
    sm, rest = np.divmod(owner, len(LANES) * len(SECTIONS))
    length = sizes.sum(-1)
    lane_begin = np.cumsum(length.reshape(-1)) - length.reshape(-1)
    index = np.arange(len(words)) - lane_begin[owner // len(SECTIONS)]
    lane, section = rest // len(SECTIONS), rest % len(SECTIONS)
    columns = Columns(program, words, sm, lane, section, index, length, sizes[:, :, 0])
    problems = list(_record_problems(columns))
    return (None if problems else columns), problems


def _record_problems(columns: Columns) -> Iterator[Violation]:
    """Theorem: every opcode is a variant of its lane's, and the words after its fields are zero."""
    program, words = columns.program, columns.words
    bad = np.nonzero((words[:, 0] < 0) | (words[:, 0] >= len(program.variants)))[0]
    if len(bad):
        yield _broken(f"record {bad[0]}: opcode {words[bad[0], 0]} is not one of {len(program.variants)} variants")
        return
    lanes = np.array([LANES.index(variant.spec.lane) for variant in program.variants], np.int64)
    used = np.array([len(variant.spec.fields) for variant in program.variants], np.int64)
    bad = np.nonzero(lanes[words[:, 0]] != columns.lane)[0]
    if len(bad):
        op = program.variants[int(words[bad[0], 0])].op
        yield _broken(f"record {bad[0]}: op {op} belongs to another lane than {LANES[int(columns.lane[bad[0]])]}")
    rest = np.arange(RECORD_WORDS)[None, :] > used[words[:, 0]][:, None]
    bad = np.nonzero((rest & (words != 0)).any(1))[0]
    if len(bad):
        op = program.variants[int(words[bad[0], 0])].op
        yield _broken(f"record {bad[0]}: words after the {used[words[bad[0], 0]]} fields of {op} are not 0")


def _round_trip(header: Mapping[str, Any], program: Program) -> Iterator[Violation]:
    """Theorem: encode(decode(t)) = t; of the records that is `_record_problems`, here the header."""
    expected = {
        "target": vars(program.target), "config": program.config, "scalars": program.scalars,
        "kv_dtype": program.kv_dtype, "knobs": program.knobs, "norms": program.norms,
        "buffers": [vars(b) for b in program.buffers],
        "variants": [{"op": v.op, "constants": v.constants} for v in program.variants],
        "tiles": [vars(t) for t in program.tiles], "biases": [vars(b) for b in program.biases],
    }  # fmt: skip
    if set(header) != {*expected, "format"}:
        yield _broken(f"header has the fields {sorted(set(header) ^ {*expected, 'format'})} too many or too few")
    for name, value in expected.items():
        if name in header and _canonical(header[name]) != _canonical(value):
            yield _broken(f"header field {name!r} does not survive decoding and encoding: unknown keys or odd values")


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=dict)


def _argument_problems(columns: Columns) -> Iterator[Violation]:
    """Theorem: no argument is negative; splits, K/V heads and accumulators exist."""
    config = columns.config
    bad = np.nonzero((columns.words < 0).any(1))[0]
    if len(bad):
        yield _broken(f"record {bad[0]} has a negative argument: {columns.words[bad[0]].tolist()}")
        return
    heads = config["layers"] * config["kv_heads"]
    cached = ("attend", "append", "copy_kv")
    limits: list[tuple[str, tuple[str, ...], int]] = [
        ("split", cached, config["max_splits"]),
        ("kv_head", cached, heads),
        ("accumulator", ("gemv_park", "gemv_resume"), config["accumulators"]),
    ]
    for name, ops, limit in limits:
        tasks = columns.of(*ops)
        values: Ints = columns.field(name, tasks)
        over = np.nonzero(values >= limit)[0]
        if len(over):
            record = tasks[over[0]]
            yield _broken(f"record {record}: {name} = {values[over[0]]} is not below {limit}")
