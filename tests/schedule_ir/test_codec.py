"""Device tables: everything of a Program survives them, and tables that describe none are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from schedule_ir import Buffer, PackedVector, Program, Section, Space, Tables, Target, Task, TensorTiles, Variant
from schedule_ir.codec import MalformedTablesError, decode, encode, from_json, to_json
from schedule_ir.op import Lane

TARGET = Target("h200", "sm_90", "sm90", 132, 232448, 62914560, 141 << 30, 4.59e12)
BODY, HEAD = Section.BODY, Section.HEAD


def small_program() -> Program:
    """Two SMs with a task or two in every lane; it computes nothing sensible."""
    variants = (
        Variant("copy_tape", {"ksteps": 4, "chunk_ksteps": 4}),
        Variant("gemv", {"ksteps": 4, "chunk_ksteps": 4, "unit_rows": 16}),
        Variant("publish", {"scaled": 1, "gated": 0, "biased": 0, "unit_rows": 16}),
        Variant("head", {}),
    )
    lanes = {
        (0, Lane.STREAM, BODY): (Task(0, (0, 3, 4)), Task(0, (4, 3, 4))),
        (0, Lane.COMPUTE, BODY): (Task(1, ()), Task(1, ())),
        (0, Lane.EPILOGUE, BODY): (Task(2, (0, 0, 0)), Task(2, (16, 0, 0))),
        (1, Lane.STREAM, HEAD): (Task(0, (0, 3, 4)),),
        (1, Lane.COMPUTE, HEAD): (Task(1, ()),),
        (1, Lane.EPILOGUE, HEAD): (Task(3, (16,)),),
    }
    return Program(
        target=TARGET,
        config={"sms": 2, "hidden": 64},
        scalars={"eps": 1e-5},
        kv_dtype="fp16",
        buffers=(Buffer("tape.0", Space.TAPE, 0, 8, 512), Buffer("qkv", Space.PACKETS, 0, 32, 8)),
        variants=variants,
        lanes=lanes,
        tiles=(TensorTiles("t", ("a", "b"), True, (8, 8), (0, 64), 4, (0, 1), (0, 0)),),
        norms=("norm",),
        biases=(PackedVector(("", "b"), False, (16, 16), 0),),
        knobs={"chunk_ksteps": 4},
    )


@pytest.fixture
def tables() -> Tables:
    return encode(small_program())


def with_header(tables: Tables, **changes: Any) -> Tables:
    return replace(tables, header={**tables.header, **changes})


def with_record(tables: Tables, row: int, column: int, value: int) -> Tables:
    records = tables.records.copy()
    records[row, column] = value
    return replace(tables, records=records)


def with_ranges(tables: Tables, edit: Callable[[Any], Any]) -> Tables:
    ranges = tables.ranges.copy()
    edit(ranges)
    return replace(tables, ranges=ranges)


def test_a_program_survives_its_tables(tables: Tables) -> None:
    program = small_program()
    decoded = decode(tables)
    assert {key: tasks for key, tasks in decoded.lanes.items() if tasks} == program.lanes
    assert replace(decoded, lanes={}) == replace(program, lanes={})


def test_tables_survive_a_program_and_json(tables: Tables) -> None:
    for again in (encode(decode(tables)), from_json(to_json(tables))):
        assert json.dumps(again.header) == json.dumps(tables.header)
        assert np.array_equal(again.records, tables.records)
        assert np.array_equal(again.ranges, tables.ranges)


def test_records_lie_lane_by_lane(tables: Tables) -> None:
    assert tables.records[:, 0].tolist() == [0, 0, 1, 1, 2, 2, 0, 1, 3]
    assert tables.ranges[0].tolist() == [[[0, 2], [2, 2]], [[2, 4], [4, 4]], [[4, 6], [6, 6]]]
    assert tables.ranges[1].tolist() == [[[6, 6], [6, 7]], [[7, 7], [7, 8]], [[8, 8], [8, 9]]]


MALFORMED: dict[str, tuple[Callable[[Tables], Tables], str]] = {
    "opcode too large": (lambda t: with_record(t, 0, 0, 4), "record 0: opcode 4"),
    "opcode negative": (lambda t: with_record(t, 0, 0, -1), "record 0: opcode -1"),
    "op of another lane": (lambda t: with_record(t, 0, 0, 1), "record 0: op gemv belongs to lane compute"),
    "words after the fields": (lambda t: with_record(t, 0, 4, 9), "record 0: op copy_tape has 3 fields"),
    "records too narrow": (lambda t: replace(t, records=t.records[:, :11]), "records have shape"),
    "a record of no lane": (
        lambda t: replace(t, records=np.concatenate([t.records, t.records[:1]])), "1 records belong to no lane",
    ),
    "ranges of another SM count": (lambda t: replace(t, ranges=t.ranges[:1]), "ranges have shape"),
    "a gap": (lambda t: with_ranges(t, lambda r: r.__setitem__((0, 1, 0), (3, 4))), "range 2 is .3, 4. where 2 is due"),
    "an end beyond the records": (
        lambda t: with_ranges(t, lambda r: r.__setitem__((1, 2, 1, 1), 99)), "range 11 is .8, 99.",
    ),
    "a range that runs backwards": (lambda t: with_ranges(t, lambda r: r.__setitem__((0, 0, 0, 1), -1)), "range 0"),
    "another format": (lambda t: with_header(t, format=99), "format 99"),
    "a header without target": (
        lambda t: replace(t, header={k: v for k, v in t.header.items() if k != "target"}), "target",
    ),
    "an unknown op": (lambda t: with_header(t, variants=[{"op": "nop", "constants": {}}]), "op 'nop' is unknown"),
    "constants of another op": (
        lambda t: with_header(t, variants=[{"op": "gemv", "constants": {"ksteps": 4}}]), "op gemv takes constants",
    ),
    "a size that is no integer": (lambda t: with_header(t, config={"sms": 2.0}), "2.0 is not an integer"),
    "a size that is a truth value": (lambda t: with_header(t, config={"sms": True}), "True is not an integer"),
    "an unknown space": (
        lambda t: with_header(
            t, buffers=[{"name": "x", "space": "moon", "offset": 0, "size": 1, "element_bytes": 4}]
        ), "moon",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_tables_are_refused(tables: Tables, case: str) -> None:
    break_it, words = MALFORMED[case]
    with pytest.raises(MalformedTablesError, match=words):
        decode(break_it(tables))


TASKS: dict[str, tuple[Lane, Task, str]] = {
    "opcode": (Lane.STREAM, Task(9, ()), "opcode 9"),
    "lane": (Lane.STREAM, Task(1, ()), "op gemv belongs to lane compute"),
    "fields": (Lane.STREAM, Task(0, (1, 2)), "op copy_tape takes 3 fields, not 2"),
    "32 bits": (Lane.STREAM, Task(0, (1 << 31, 3, 4)), "does not fit 32 bits"),
}


@pytest.mark.parametrize("case", TASKS)
def test_tasks_that_no_table_can_hold(case: str) -> None:
    lane, task, words = TASKS[case]
    program = small_program()
    with pytest.raises(MalformedTablesError, match=words):
        encode(replace(program, lanes={**program.lanes, (0, lane, BODY): (task,)}))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"header": {}}', '{"header": {}, "records": [[1]], "ranges": []}', "9" * 5000]
)
def test_json_that_holds_no_tables(text: str) -> None:
    with pytest.raises(MalformedTablesError):
        from_json(text)


def test_json_values_beyond_32_bits(tables: Tables) -> None:
    data = json.loads(to_json(tables))
    data["records"][0][1] = 1 << 40
    with pytest.raises(MalformedTablesError, match="32 bits"):
        from_json(json.dumps(data))
