"""The columns and footprints that the validator computes are exactly the decoded tasks and their declared accesses."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from schedule_ir import REGISTRY, decode
from schedule_ir.codec import LANES, SECTIONS
from schedule_ir.expr import evaluate, lift
from schedule_ir.layout import split_count
from tests.validator import programs
from validator.columns import Columns
from validator.footprints import PAIRWISE, SPACES, Footprints, footprints
from validator.rules import codec

CASES = [programs.random_case(random.Random(seed)) for seed in range(6)]


def columns_of(case: programs.Case) -> Columns:
    columns, problems = codec.check(case.tables)
    assert columns is not None, problems
    return columns


@pytest.mark.parametrize("case", CASES)
def test_columns_are_the_decoded_tasks(case: programs.Case) -> None:
    columns = columns_of(case)
    names = [v.op for v in columns.program.variants]
    found: list[Any] = []
    for t in range(columns.tasks):
        op = names[columns.opcode[t]]
        place = columns.index[t] - columns.section[t] * columns.body_length[columns.sm[t], columns.lane[t]]
        where = (int(columns.sm[t]), LANES[columns.lane[t]], SECTIONS[columns.section[t]], int(place))
        found.append((*where, op, tuple(columns.words[t, 1 : 1 + len(REGISTRY[op].fields)].tolist())))
    program = decode(case.tables)
    ranked = sorted(program.tasks(), key=lambda x: (x[0], LANES.index(x[1]), SECTIONS.index(x[2]), x[3]))
    assert found == [(*where, program.variants[task.opcode].op, task.args) for *where, task in ranked]


@pytest.mark.parametrize("case", CASES)
def test_footprints_are_the_declared_accesses_of_each_task(case: programs.Case) -> None:
    columns = columns_of(case)
    accesses = footprints(columns)
    found = [_row(columns, accesses, i) for i in range(len(accesses.task))]
    assert sorted(found) == sorted(_declared(columns))


def _row(columns: Columns, a: Footprints, i: int) -> tuple[Any, ...]:
    active = tuple(a.patterns[a.pattern[i]].tolist())
    place = (SPACES[a.space[i]], int(a.start[i]), int(a.length[i]))
    return (int(a.task[i]), *place, bool(a.write[i]), int(a.phase[i]), bool(a.previous[i]), active)


def _declared(columns: Columns) -> list[tuple[Any, ...]]:
    """By calling every rule for every task with plain integers, and evaluating `active` at positions, not counts."""
    rows = []
    config = columns.config
    counts = {evaluate(split_count(config), {"pos": pos}): pos for pos in range(2_000, -1, -1)}
    for t in range(columns.tasks):
        variant = columns.program.variants[columns.opcode[t]]
        args = dict(zip(variant.spec.fields, columns.words[t, 1:].tolist(), strict=False))
        for access in variant.spec.accesses(args, variant.constants, config):
            if access.space == "kv":
                continue
            active = tuple(
                access.active is None or bool(evaluate(lift(access.active), {"pos": counts[n]}))
                for n in range(1, config["max_splits"] + 1)
            )
            length = int(access.length)  # type: ignore[arg-type]
            length += length % 2 if variant.op in PAIRWISE and access.phase is not None else 0
            phase = -1 if access.phase is None else access.phase
            place = (access.space, int(access.start), length)  # type: ignore[arg-type]
            rows.append((t, *place, access.write, phase, access.previous_epoch, active))
    return rows


def test_a_rule_that_branches_is_not_answered_for_a_whole_column() -> None:
    """Even a group of one task must make a branching rule raise, so that no branch is taken for others."""
    columns = columns_of(programs.case())
    heads = columns.of("head")
    accesses = footprints(columns).of("logits")
    assert len(accesses.task) == len(heads)
    assert np.unique(accesses.length).tolist() == [8, 16]
