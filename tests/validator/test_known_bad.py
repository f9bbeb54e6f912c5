"""Programs that other validators accept (see the end of shared/VALIDATION.md), rejected here by the right rule."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from amk.lower import lower
from schedule_ir import REGISTRY, Tables, Target, encode
from tests.validator import mutations, programs, toys
from tests.validator.mutations import Sheet
from validator import validate

ROOT = Path(__file__).resolve().parents[2]
H200 = Target("h200", "sm_90", "sm90", 132, 232448, 62914560, 141 << 30, 4.59e12)


@cache
def big(layers: int = 16) -> programs.Case:
    """The schedule of Llama-3.2-1B (or a part of its layers) on an H200: more than 100,000 tasks."""
    model = programs.graph(2048, 8192, layers, 32, 8, 64, 128256)
    return programs.Case(model, H200, lower(model, H200, 4096))


def rules(tables: Tables, case: programs.Case) -> set[int]:
    return {v.rule for v in validate(tables, case.model, case.gpu).violations}


def planted(case: programs.Case, *, aliased: bool) -> Tables:
    """o has a phase of its own before that of the rest of its layer; `aliased`: and its mailbox is the MLP's, so that a
    gate/up unit overwrites what slower SMs have still to add to their residual.
    """
    sheet = Sheet(case.tables, random.Random(0))
    o, mlp = sheet.buffer("o"), sheet.buffer("mlp")
    for row in (row for rows in sheet.lanes.values() for row in rows):
        op = sheet.ops[row[0]]
        if "phase" not in REGISTRY[op].fields:
            continue
        place = {"publish": "dst", "add_norm": "src"}.get(op)
        mine = place is not None and o["offset"] <= row[sheet.column(row, place)] < o["offset"] + o["size"]
        phase = sheet.column(row, "phase")
        row[phase] = 2 * row[phase] + (0 if mine else 1)
        if mine and place and aliased:
            row[sheet.column(row, place)] += mlp["offset"] - o["offset"]
    sheet.header["config"]["phases"] *= 2
    return sheet.tables()


def test_two_sm_deadlock() -> None:
    """SM0 = [b waits c, a], SM1 = [d waits a, c]."""
    steps = [[("wait", 1, 0), ("make", 0, 0)], [("wait", 0, 0), ("make", 1, 0)]]
    report = validate(encode(toys.toy(steps, 2)), None, None)
    deadlock = next(v for v in report.violations if v.rule == 2)
    assert "2 tasks wait for each other" in deadlock.message
    assert "SM 0" in deadlock.witness
    assert "SM 1" in deadlock.witness


def test_race_of_two_tasks() -> None:
    steps = [[("make", 0, 0)], [("wait", 0, 0), ("make", 1, 0)]]
    report = validate(encode(toys.toy(steps, 2)), None, None)
    assert 4 in {v.rule for v in report.violations}


@pytest.mark.parametrize(("make", "least"), [(programs.case, 100), (lambda: big(2), 8_000), (big, 100_000)])
def test_the_same_race_whatever_the_size(make: object, least: int) -> None:
    case: programs.Case = make()  # type: ignore[operator]
    assert len(case.tables.records) > least
    assert rules(case.tables, case) == set()
    assert rules(planted(case, aliased=False), case) == set()
    report = validate(planted(case, aliased=True), case.model, case.gpu)
    assert {v.rule for v in report.violations} == {4}
    assert "is not ordered before the next write" in report.violations[0].message


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("tile_beyond_vocab", {8, 9}),
        ("tile_beyond_tape", {8}),
        ("activation_beyond_buffer", {8}),
        ("position_beyond_cache", {7, 8}),
        ("negative_tile", {1}),
        ("tags_of_two_epochs", {10}),
        ("too_much_shared_memory", {11}),
        ("grid_one_block_too_large", {11}),
        ("scale_not_finite", {1, 12}),
    ],
)
def test_list(name: str, wanted: set[int]) -> None:
    case = programs.case()
    kind = next(k for k in mutations.KINDS if k.name == name)
    made = [mutations.mutate(case.tables, kind, random.Random(seed)) for seed in range(8)]
    broken = [tables for tables in made if tables is not None]
    assert len(broken) >= 4
    assert all(rules(tables, case) & wanted for tables in broken)


def test_nan_scale() -> None:
    case = programs.case()
    header = {**case.tables.header, "scalars": {**case.tables.header["scalars"], "eps": math.nan}}
    assert rules(Tables(header, case.tables.records, case.tables.ranges), case) == {1}


def test_wait_that_is_satisfied_before_anyone_signals() -> None:
    """The counter that starts full, in packets: a phase beyond the epoch's has a tag of the next epoch."""
    case = programs.case()
    sheet = Sheet(case.tables, random.Random(0))
    for key, place in sheet.find("kv_release", "kv_acquire"):
        row = sheet.lanes[key][place]
        row[sheet.column(row, "phase")] += case.program.config["phases"]
    assert 10 in rules(sheet.tables(), case)


@pytest.mark.parametrize("mutant", ["wrong_tag", "moved_task", "missing_tile", "wrong_destination", "dropped_wait"])
def test_mutants_of_a_big_schedule(mutant: str) -> None:
    case = big(2)
    kind = next(k for k in mutations.KINDS if k.name == mutant)
    made = (mutations.mutate(case.tables, kind, random.Random(seed)) for seed in range(20))
    assert rules(next(tables for tables in made if tables is not None), case)


def test_8b_in_five_seconds_and_a_gibibyte() -> None:
    """Llama-3.1-8B, all layers, validated in a process of its own that only holds the tables."""
    script = ROOT / "benchmarks/validator/speed.py"
    started = time.monotonic()
    done = subprocess.run([sys.executable, str(script), "8b"], capture_output=True, text=True, check=True, timeout=300)
    seconds, mebibytes = (float(word) for word in done.stdout.split()[-2:])
    assert mebibytes < 1024
    assert seconds < 5 or time.monotonic() - started > 60, "slow on a machine that is not busy"
