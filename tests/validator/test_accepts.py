"""Real lowerings are accepted, and the oracle finds nothing wrong with them either."""

from __future__ import annotations

import random
from dataclasses import replace
from importlib import import_module

import pytest

from amk.lower import Knobs, lower
from schedule_ir import Program, Task, encode
from tests.validator import campaign, oracle, programs
from validator import validate


@pytest.mark.parametrize("seed", range(40))
def test_random_lowering(seed: int) -> None:
    case = programs.random_case(random.Random(1000 + seed))
    report = validate(case.tables, case.model, case.gpu)
    assert sorted(report.rules) == list(range(1, 13))
    if not report.ok:  # a split of down over few units (see the test below): then the oracle can show the hang
        assert {v.rule for v in report.violations} == {4}, report.text()
        assert campaign.trouble(case.tables, case.model, random.Random(seed), campaign.CONFIRM) is not None
    elif seed % 4 == 0:
        assert campaign.trouble(case.tables, case.model, random.Random(seed), runs=2) is None


@pytest.mark.parametrize("splits", [1, 2, 3, 16])
def test_oracle_agrees_at_every_position_where_the_splits_change(splits: int) -> None:
    case = programs.case(sms=6, knobs=Knobs(compute_warps=4, chunk_ksteps=4, max_splits=splits, min_split_rows=16))
    for start in (0, 14, 15, 30, 31, 46):
        setup = oracle.Setup(start, (False, True, False, True))
        assert oracle.judge(case.tables, case.model, setup, oracle.by_priority(random.Random(start))) is None


@pytest.mark.parametrize("seed", range(25))
def test_accepted_placements_never_hang(seed: int) -> None:
    """Units dealt at random: whatever the validator accepts must survive the oracle."""
    rng = random.Random(seed)
    case = campaign.random_placement(rng)
    if validate(case.tables, case.model, case.gpu).ok:
        assert campaign.trouble(case.tables, case.model, rng, runs=4) is None


def test_lowering_of_one_layer_can_hang_and_is_rejected() -> None:
    """An SM without a unit of down releases its K/V rows before another has acquired those of the token before."""
    case = programs.case(layers=1, sms=8)
    report = validate(case.tables, case.model, case.gpu)
    assert [v.rule for v in report.violations[:1]] == [4], report.text()
    assert "kv_released" in report.violations[0].message
    assert campaign.trouble(case.tables, case.model, random.Random(5), runs=150) is not None


def test_the_last_query_block_of_a_head_appends() -> None:
    """More than 8 queries per K/V head: the append writes into the block that the tasks before have drained."""
    model = programs.graph(heads=12, kv_heads=1)
    gpu = programs.target(6)
    program = lower(model, gpu, 64, "fp16", programs.KNOBS)
    assert validate(encode(program), model, gpu).ok
    lanes = {key: tuple(_other_appends(program, task) for task in tasks) for key, tasks in program.lanes.items()}
    report = validate(encode(replace(program, lanes=lanes)), model, gpu)
    assert {v.rule for v in report.violations} == {4}
    assert "races with the append" in report.violations[0].message


def _other_appends(program: Program, task: Task) -> Task:
    """The task, with `append` negated if it is an attend: the first query block appends, the second copies after."""
    spec = program.variants[task.opcode].spec
    if spec.name != "attend":
        return task
    at = spec.fields.index("append")
    return replace(task, args=(*task.args[:at], 1 - task.args[at], *task.args[at + 1 :]))


def _split_down_over_few_units() -> programs.Case:
    """A K-part of down waits for the owners of its inputs only; other SMs may still have to read the one before."""
    knobs = Knobs(2, 8, ring_stages=6, reduce_slots=2, down_split=2, min_split_rows=16, max_splits=3)
    shape = {"hidden": 32, "intermediate": 72, "layers": 3, "heads": 2, "kv_heads": 1, "head_dim": 8}
    make = programs.case.__wrapped__  # not the cached one: the lowering may be a broken one
    return make(**shape, sms=6, max_seq=17, knobs=knobs)


def test_split_of_down_alternates_mailboxes_and_is_accepted() -> None:
    case = _split_down_over_few_units()
    report = validate(case.tables, case.model, case.gpu)
    assert report.ok, report.text()
    assert campaign.trouble(case.tables, case.model, random.Random(1), runs=30) is None


def test_split_of_down_with_one_mailbox_can_hang_and_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    lowering = import_module("amk.lower.lower")._Lowering
    monkeypatch.setattr(lowering, "_down_names", lambda _: ["down"])
    case = _split_down_over_few_units()
    report = validate(case.tables, case.model, case.gpu)
    assert {v.rule for v in report.violations} == {4}
    assert "a read of down" in report.violations[0].message
    assert campaign.trouble(case.tables, case.model, random.Random(1), runs=150) is not None
