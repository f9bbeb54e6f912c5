"""Every kind of mutation is killed, by a rule that fits it; nothing that the oracle finds wrong is accepted."""

from __future__ import annotations

import random

import pytest

from amk.lower import Knobs
from tests.validator import campaign, mutations, programs
from validator import validate

PER_KIND = 20
CASES = [
    programs.case(),
    programs.case(bias=True, sms=3),
    programs.case(sms=6, kv_heads=2, heads=6, knobs=Knobs(2, 4, reduce_slots=2, max_splits=3, min_split_rows=16)),
    programs.case(intermediate=128, tied=False, knobs=Knobs(4, 4, down_split=2, max_splits=2, min_split_rows=16)),
    programs.case(intermediate=128, sms=2, hidden=64, knobs=Knobs(2, 2, down_pieces=4, min_split_rows=16)),
    programs.case(
        intermediate=128,
        sms=3,
        bias=True,
        hidden=100,
        window=24,
        knobs=Knobs(2, 2, down_pieces=2, down_split=2, min_split_rows=16),
    ),
    programs.case(
        intermediate=128,
        hidden=64,
        sms=3,
        bias=True,
        knobs=Knobs(2, 2, qkv_rows=8, o_rows=8, down_rows=8, down_pieces=2, min_split_rows=16),
    ),
    programs.case(intermediate=128, hidden=64, sms=3, bias=True, knobs=Knobs(2, 2, down_pieces=2, min_split_rows=16)),
    programs.case(intermediate=128, hidden=64, sms=6, bias=True, knobs=Knobs(2, 2, max_splits=2, min_split_rows=16)),
]


def test_there_are_enough_kinds() -> None:
    assert len(mutations.KINDS) >= 25
    assert len({kind.name for kind in mutations.KINDS}) == len(mutations.KINDS)


@pytest.mark.parametrize("kind", mutations.KINDS, ids=lambda kind: kind.name)
def test_kind_is_killed(kind: mutations.Kind) -> None:
    rng = random.Random(kind.name)
    applied = killed = 0
    for _ in range(PER_KIND * 4):
        case = rng.choice(CASES)
        broken = mutations.mutate(case.tables, kind, rng)
        if broken is None:
            continue
        applied += 1
        report = validate(broken, case.model, case.gpu)
        rules = {violation.rule for violation in report.violations}
        killed += not report.ok
        assert not any("Error:" in v.message for v in report.violations), report.text()
        if kind.certain:
            assert not report.ok
            assert not kind.rules or rules & kind.rules, report.text()
        elif report.ok:
            assert campaign.trouble(broken, case.model, rng, runs=2) is None
        if applied == PER_KIND:
            break
    assert applied >= 3
    assert killed


def test_campaign_block_is_a_function_of_seed_and_number() -> None:
    def signature() -> list[tuple[str, int, int]]:
        rng = random.Random("1/0")
        case = programs.random_case(rng)
        kinds = [rng.choice(mutations.KINDS) for _ in range(50)]
        broken = [mutations.mutate(case.tables, kind, rng) for kind in kinds]
        return [
            (k.name, -1 if b is None else len(b.records), 0 if b is None else int(b.records.sum()))
            for k, b in zip(kinds, broken, strict=True)
        ]

    assert signature() == signature()
