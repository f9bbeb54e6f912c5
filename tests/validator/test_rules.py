"""Per rule a schedule that holds and its twin that is off by one, side by side."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from amk.lower import Knobs
from schedule_ir import Tables
from tests.validator import programs
from tests.validator.mutations import Sheet
from validator import validate
from validator.report import Report

CASE = programs.case(bias=True)
Edit = Callable[[Sheet], object]


def edited(edit: Edit, case: programs.Case = CASE) -> Tables:
    sheet = Sheet(case.tables, random.Random(0))
    edit(sheet)
    return sheet.tables()


def check(edit: Edit, **options: Any) -> Report:
    return validate(edited(edit), CASE.model, CASE.gpu, **options)


def config(**changes: int) -> Edit:
    return lambda sheet: sheet.header["config"].update({k: sheet.header["config"][k] + v for k, v in changes.items()})


def buffer(name: str, size: int) -> Edit:
    def edit(sheet: Sheet) -> None:
        sheet.buffer(name)["size"] += size

    return edit


def word(op: str, field: str, change: int, which: int = 0) -> Edit:
    def edit(sheet: Sheet) -> None:
        key, place = sheet.find(op)[which]
        row = sheet.lanes[key][place]
        row[sheet.column(row, field)] += change

    return edit


def nothing(_: Sheet) -> None:
    """Leaves the schedule as it is."""


def swap(op: str, distance: int) -> Edit:
    """Moves the first task of an op along its lane."""

    def edit(sheet: Sheet) -> None:
        key, place = sheet.find(op)[0]
        rows = sheet.lanes[key]
        rows.insert(place + distance, rows.pop(place))

    return edit


def trailing(value: int) -> Edit:
    def edit(sheet: Sheet) -> None:
        next(rows for rows in sheet.lanes.values() if rows)[0][11] = value

    return edit


def gather_before_publishes(sheet: Sheet) -> None:
    """The gather of the o projection goes to the front of every compute lane: it waits for what comes behind it."""
    for key, rows in sheet.lanes.items():
        if key[1] == 1 and key[2] == 0:
            place = next(i for i, row in enumerate(rows) if sheet.ops[row[0]] == "gather")
            rows.insert(1, rows.pop(place))


def slots(count: int) -> Edit:
    return lambda sheet: sheet.header["config"].update(in_flight=sheet.header["config"]["ring_stages"] + count)


def row_tail(sheet: Sheet) -> None:
    """An extra task at the end of the epilogue's body: an unmatched publish."""
    rows = sheet.lanes[0, 2, 0]
    rows.append(list(rows[0]))


def fewer_slots(sheet: Sheet) -> None:
    """The last slot of the ring is not used."""
    config(ring_stages=-1)(sheet)
    slots = sheet.header["config"]["ring_stages"]
    sheet.header["config"]["stocked"] = slots - 1
    for key, place in sheet.find("copy_tape"):
        row = sheet.lanes[key][place]
        row[sheet.column(row, "stocked")] = slots - 1


TWINS: list[tuple[int, Edit, Edit]] = [
    (1, trailing(0), trailing(1)),
    (1, config(tied_head=0), lambda s: s.header["config"].update(layers=0)),
    (2, nothing, row_tail),
    (2, nothing, gather_before_publishes),
    (3, word("kv_release", "phase", 0), word("kv_release", "phase", -1)),
    (3, word("publish", "dst", 0), word("publish", "dst", 16)),
    (5, swap("kv_acquire", 0), swap("kv_acquire", 1)),
    (6, slots(0), slots(1)),
    (6, fewer_slots, config(ring_stages=1)),
    (6, lambda s: s.buffer("shared.ring"), buffer("shared.ring", -1)),
    (6, lambda s: s.header["config"].update(stocked=s.header["config"]["ring_stages"] - 1),
     lambda s: s.header["config"].update(stocked=s.header["config"]["ring_stages"])),
    (6, word("copy_tape", "in_flight", 0), word("copy_tape", "in_flight", -3)),
    (6, word("copy_tape", "in_flight", 0), word("copy_tape", "in_flight", 100)),
    (6, word("copy_tape", "stocked", 0), word("copy_tape", "stocked", 100)),
    (7, config(max_seq=-1), config(max_seq=1)),
    (7, config(min_split_rows=16), config(min_split_rows=8)),
    (7, buffer("kv", 16), buffer("kv", -1)),
    (8, lambda s: s.buffer("kv_released"), buffer("kv_released", -1)),
    (8, lambda s: s.buffer("rope"), buffer("rope", -1)),
    (8, lambda s: s.buffer("norms"), buffer("norms", -48)),
    (8, word("copy_tape", "offset", 0), word("copy_tape", "offset", 10_000)),
    *((8, word("attend", name, 0), word("attend", name, 1)) for name in ("q_src", "v_src", "part_dst", "out_dst")),
    (9, word("head", "row", 0), word("head", "row", 1)),
    (9, word("copy_tape", "offset", 0), word("copy_tape", "offset", 1)),
    (9, word("append", "split", 0), word("append", "split", 1)),
    (10, config(phases=1), config(phases=-1)),
    (12, word("add_norm", "norm", 0), word("add_norm", "norm", 1)),
    (12, word("attend", "k_src", 0), word("attend", "k_src", 16)),
    (12, word("combine", "part_src", 0), word("combine", "part_src", 18)),
    (12, word("publish", "bias", 0), word("publish", "bias", 16)),
    (12, lambda s: s.header["norms"], lambda s: s.header.update(norms=list(reversed(s.header["norms"])))),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "good", "bad"), TWINS, ids=lambda x: str(x) if isinstance(x, int) else "")
def test_twins(rule: int, good: Edit, bad: Edit) -> None:
    accepted = check(good)
    assert accepted.ok, accepted.text()
    rejected = check(bad)
    assert rule in {v.rule for v in rejected.violations}, rejected.text()


PIECES = programs.case(
    intermediate=128, hidden=64, sms=2, knobs=Knobs(2, 2, down_pieces=4, max_splits=2, min_split_rows=16)
)
"""Two units of down per SM, in four pieces each."""


def barriers(missing: int) -> Edit:
    """A region of barriers and lane state that is as small as it can be, less some bytes."""

    def edit(sheet: Sheet) -> None:
        sizes, region = sheet.header["config"], sheet.buffer("shared.barriers")
        before = region["size"]
        region["size"] = 16 * sizes["ring_stages"] + 64 + 2 * 8 * (sizes["compute_warps"] + 1) - missing
        sizes["shared_bytes"] += region["size"] - before

    return edit


def resumes(value: int) -> Edit:
    """The first park of a unit, which takes nothing from its accumulator, does or does not."""

    def edit(sheet: Sheet) -> None:
        key, place = sheet.find("gemv_park")[0]
        row = sheet.lanes[key][place]
        row[0] = sheet.opcode("gemv_park", {**sheet.constants(row), "resume": value})

    return edit


def gathered(change: int) -> Edit:
    """The source of the second piece's activation."""

    def edit(sheet: Sheet) -> None:
        key, place = sheet.find("gemv_park")[2]
        gather = sheet.lanes[key][place - 1]
        assert sheet.ops[gather[0]] == "gather"
        gather[1] += change

    return edit


def append_at(where: int) -> Edit:
    """The first append this many tasks after its attend."""

    def edit(sheet: Sheet) -> None:
        key, place = sheet.find("append")[0]
        rows = sheet.lanes[key]
        append = rows.pop(place)
        attend = next(i for i in range(place - 1, -1, -1) if sheet.ops[rows[i][0]] == "attend")
        rows.insert(min(len(rows), attend + where), append)

    return edit


def exchanged(*, links: int) -> Edit:
    """The first two units of an SM exchange accumulators, in all four links or in the last ones only."""

    def edit(sheet: Sheet) -> None:
        key, _ = sheet.find("gemv_park")[0]
        mine = [row for row in sheet.lanes[key] if sheet.ops[row[0]].startswith("gemv_")][:8]
        for row in mine[8 - links :]:
            row[1] = 1 - row[1]

    return edit


PIECE_TWINS: list[tuple[int, Edit, Edit]] = [
    (1, config(accumulators=0), config(accumulators=-1)),
    (4, append_at(1), append_at(0)),
    (5, append_at(2), append_at(1000)),
    (6, barriers(0), barriers(1)),
    (8, buffer("shared.accumulators", 0), lambda s: s.buffer("shared.accumulators").update(offset=16)),
    (9, resumes(0), resumes(1)),
    (9, word("gemv_park", "accumulator", 0), word("gemv_park", "accumulator", 1)),
    (9, word("append", "kv_head", 0), word("append", "kv_head", 1)),
    (11, buffer("shared.accumulators", 0), buffer("shared.accumulators", -1)),
    (12, gathered(0), gathered(16)),
    (12, exchanged(links=8), exchanged(links=2)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "good", "bad"), PIECE_TWINS, ids=lambda x: str(x) if isinstance(x, int) else "")
def test_twins_in_pieces(rule: int, good: Edit, bad: Edit) -> None:
    accepted = validate(edited(good, PIECES), PIECES.model, PIECES.gpu)
    assert accepted.ok, accepted.text()
    rejected = validate(edited(bad, PIECES), PIECES.model, PIECES.gpu)
    assert rule in {v.rule for v in rejected.violations}, rejected.text()


def test_lost_sums_are_shown() -> None:
    """The witness names the link, its accumulator and what is missing."""

    def start_again(sheet: Sheet) -> None:
        key, place = sheet.find("gemv_park")[2]
        row = sheet.lanes[key][place]
        row[0] = sheet.opcode("gemv_park", {**sheet.constants(row), "resume": 0})

    text = validate(edited(start_again, PIECES), PIECES.model, PIECES.gpu).text()
    assert "what is parked in accumulator 0 of SM 0 is overwritten before it was used" in text
    assert "missing: a gemv_resume of this accumulator between the two" in text


def test_race_of_the_acquire_needs_a_later_unit() -> None:
    """Rule 4 twins: with two layers every SM contributes between acquire and release; with one it need not."""
    good, bad = programs.case(sms=8), programs.case(sms=8, layers=1)
    assert validate(good.tables, good.model, good.gpu).ok
    assert {v.rule for v in validate(bad.tables, bad.model, bad.gpu).violations} == {4}


@pytest.mark.parametrize(
    ("change", "ok"),
    [({}, True), ({"sms": 3}, False), ({"smem_bytes": 10_000}, False), ({"arch": "sm_80"}, False)],
)
def test_target(change: dict[str, Any], ok: bool) -> None:
    report = validate(CASE.tables, CASE.model, replace(CASE.gpu, **change))
    assert report.ok is ok
    assert ok or {v.rule for v in report.violations} == {11}


@pytest.mark.parametrize(("registers", "ok"), [(255, True), (256, False)])
def test_registers(registers: int, ok: bool) -> None:
    shared = CASE.program.config["shared_bytes"]
    report = validate(CASE.tables, CASE.model, CASE.gpu, kernel={"registers": registers, "shared_bytes": shared})
    assert report.ok is ok
    assert ok or {v.rule for v in report.violations} == {11}


def test_registers_of_ten_warps() -> None:
    """320 threads may have 168 registers, not 169: the register file is divided by warps rounded up to four."""
    case = programs.case(knobs=Knobs(compute_warps=8, chunk_ksteps=8, max_splits=2, min_split_rows=16))
    shared = case.program.config["shared_bytes"]
    for registers, ok in ((168, True), (169, False)):
        kernel = {"registers": registers, "shared_bytes": shared}
        assert validate(case.tables, case.model, case.gpu, kernel=kernel).ok is ok


def test_wrong_model_is_rejected() -> None:
    other = programs.case(bias=True, layers=3).model
    assert {v.rule for v in validate(CASE.tables, other, CASE.gpu).violations} == {12}
    assert {v.rule for v in validate(CASE.tables, None, CASE.gpu).violations} == {12}


def test_one_rule_only() -> None:
    report = check(config(max_seq=1), rule=7)
    assert {v.rule for v in report.violations} == {7}
    assert report.rules == (1, 7)
    assert check(config(max_seq=1), rule="races").ok
    with pytest.raises(ValueError, match="none of 1"):
        check(nothing, rule="13")


def test_witness_shows_tasks_and_what_is_missing() -> None:
    text = check(gather_before_publishes).text()
    assert "deadlock" in text
    assert "waits for" in text
    assert "made by SM" in text


def test_report_is_json() -> None:
    import json

    report = check(nothing)
    data = json.loads(report.json_text())
    assert data["ok"] is True
    assert set(data) >= {"ok", "violations", "obligations", "stats", "assumptions"}
    assert set(data["stats"]) == {"tasks", "lanes", "handoffs", "seconds"}
    assert np.isclose(data["stats"]["tasks"], len(CASE.tables.records))


def test_values_that_nobody_reads() -> None:
    """Rule 4 twins: both values of a mailbox are read; only the second is, so the first may land after it."""
    from schedule_ir import encode
    from tests.validator import toys

    turns = [[("make", 0, 0), ("wait", 1, 0), ("make", 0, 1), ("wait", 1, 1)]]
    read = [*turns, [("wait", 0, 0), ("make", 1, 0), ("wait", 0, 1), ("make", 1, 1)]]
    unread = [*turns, [("make", 1, 0), ("wait", 0, 1), ("make", 1, 1)]]
    for steps, found in ((read, False), (unread, True)):
        report = validate(encode(toys.toy(steps, 2)), None, None)
        assert any("never read" in v.message and v.rule == 4 for v in report.violations) is found, report.text()
