"""One block of the mutation campaign: fresh lowerings, mutants of them, and schedules with random placements.

A block is a function of (seed, number) alone, so a campaign can stop and go on, and any finding can be made again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from amk.lower import Knobs, lower
from amk.lower.builder import Builder
from schedule_ir import Lane, Program, Tables, Task
from tests.validator import mutations, oracle, programs
from validator import validate

MUTANTS = 500
CASES = 6
PLACEMENTS = 2
RUNS = 5
CONFIRM = 300
"""Runs of the oracle before a rejected lowering counts as rejected wrongly."""


def block(seed: int, number: int) -> dict[str, Any]:
    """Tallies of a block as JSON data."""
    rng = random.Random(f"{seed}/{number}")
    tally: dict[str, Any] = {
        "lowerings": 0,
        "false_rejects": [],
        "right_rejects": [],
        "false_accepts": [],
        "unchecked": [],
        "kinds": {},
    }
    cases = [programs.random_case(rng) for _ in range(CASES)]
    for case in cases:
        report = validate(case.tables, case.model, case.gpu)
        tally["lowerings"] += 1
        if not report.ok:
            wrong = trouble(case.tables, case.model, random.Random(f"{seed}/{number}/rejected"), CONFIRM)
            kind = "false_rejects" if wrong is None else "right_rejects"
            tally[kind].append(f"block {number}: {report.violations[0].message}; oracle: {wrong}")
    for index in range(MUTANTS):
        _mutant(rng, cases, tally, f"block {number}, mutant {index}")
    tally["placements"] = Counter(_placement(rng, tally, f"block {number}, placement {i}") for i in range(PLACEMENTS))
    return tally


def _mutant(rng: random.Random, cases: list[programs.Case], tally: dict[str, Any], name: str) -> None:
    while True:
        case, kind = rng.choice(cases), rng.choice(mutations.KINDS)
        broken = mutations.mutate(case.tables, kind, rng)
        if broken is not None:
            break
    report = validate(broken, case.model, case.gpu)
    counts = tally["kinds"].setdefault(kind.name, Counter())
    counts["mutants"] += 1
    counts["killed" if not report.ok else "accepted"] += 1
    for rule in {violation.rule for violation in report.violations}:
        counts[f"rule {rule}"] += 1
    tally["unchecked"] += [f"{name}: {v.message}" for v in report.violations if "Error:" in v.message]
    if not report.ok:
        return
    wrong = "wrong by construction" if kind.certain else trouble(broken, case.model, rng)
    if wrong:
        tally["false_accepts"].append(f"{name}, {kind.name}: {wrong}")


def trouble(tables: Tables, model: Any, rng: random.Random, runs: int = RUNS) -> str | None:
    """What the oracle finds wrong in some runs of different positions, heads and interleavings."""
    last = int(tables.header["config"]["max_seq"]) - 1
    for _ in range(runs):
        tokens = rng.randint(2, 4)
        start = min(rng.choice([0, 1, 3, 14, 15, 16, 30, 31, 47]), max(0, last - tokens + 1))
        heads = tuple(rng.random() < 0.5 for _ in range(tokens))
        setup = oracle.Setup(start, heads, rng.choice([1, 7, 2**32 // max(1, tables.header["config"]["phases"]) - 1]))
        prefer = oracle.by_priority(rng, rng.choice([0, 3, 10])) if rng.random() < 0.8 else oracle.randomly(rng)
        wrong = oracle.judge(tables, model, setup, prefer)
        if wrong:
            return f"{wrong} (start {start}, heads {heads})"
    return None


@contextmanager
def scattered(rng: random.Random) -> Iterator[None]:
    """Within it the lowering deals units at random, often to a few SMs only: right results, doubtful order."""
    dealt = Builder.deal

    def deal(builder: Builder, units: int) -> list[int]:
        if rng.random() < 0.35:
            return dealt(builder, units)
        some = rng.sample(range(builder.sms), rng.randint(1, builder.sms))
        return [rng.choice(some) for _ in range(units)]

    Builder.deal = deal  # type: ignore[method-assign]
    try:
        yield
    finally:
        Builder.deal = dealt  # type: ignore[method-assign]


def random_placement(rng: random.Random) -> programs.Case:
    """A small lowering with its units anywhere."""
    heads, kv_heads = rng.choice([(2, 1), (4, 2), (2, 2)])
    model = programs.graph(rng.choice([32, 48]), 64, rng.choice([1, 2]), heads, kv_heads, 16, 24)
    gpu = programs.target(rng.choice([2, 3, 4, 6]))
    knobs = Knobs(compute_warps=2, chunk_ksteps=rng.choice([2, 4]), max_splits=rng.choice([1, 2, 3]), min_split_rows=16)
    rows = {name: rng.choice([16, 8]) for name in ("qkv_rows", "o_rows", "down_rows")}
    knobs = replace(knobs, down_pieces=rng.choice([1, 1, 2]), **rows)
    with scattered(rng):
        program = lower(model, gpu, 64, "fp16", knobs)
    return programs.Case(model, gpu, early_appends(program) if rng.random() < 0.7 else program)


def early_appends(program: Program) -> Program:
    """The Program with every append right after the attends of its K/V head: units may follow, wherever they are."""
    lanes = {
        key: tuple(_early(program, tasks)) if key[1] is Lane.COMPUTE else tasks for key, tasks in program.lanes.items()
    }
    return replace(program, lanes=lanes)


def _early(program: Program, tasks: tuple[Task, ...]) -> Iterator[Task]:
    ops = [program.variants[task.opcode].op for task in tasks]
    appends = [task for task, op in zip(tasks, ops, strict=True) if op == "append"]
    for i, task in enumerate(tasks):
        if ops[i] != "append":
            yield task
        if ops[i] == "attend" and ops[i + 1 : i + 2] != ["attend"]:
            yield from appends[:1]
            appends = appends[1:]


def _placement(rng: random.Random, tally: dict[str, Any], name: str) -> str:
    case = random_placement(rng)
    report = validate(case.tables, case.model, case.gpu)
    wrong = trouble(case.tables, case.model, rng)
    if report.ok and wrong:
        tally["false_accepts"].append(f"{name}: {wrong}")
    return f"{'accepted' if report.ok else 'rejected'}, oracle {'finds trouble' if wrong else 'finds nothing'}"
