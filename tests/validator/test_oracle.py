"""The validator against every interleaving of small programs, and the oracle's own sharpness."""

from __future__ import annotations

import random

import pytest

from amk.lower import Knobs
from schedule_ir import encode
from tests.validator import mutations, oracle, programs, toys
from validator import validate

RIGHT_ORDER = [[("make", 0, 0), ("wait", 1, 0), ("make", 0, 1)], [("wait", 0, 0), ("make", 1, 0), ("wait", 0, 1)]]
CROSSED = [[("wait", 1, 0), ("make", 0, 0)], [("wait", 0, 0), ("make", 1, 0)]]
UNORDERED = [[("make", 0, 0)], [("wait", 0, 0), ("make", 1, 0)]]
TOO_EARLY = [[("make", 0, 0), ("make", 0, 1)], [("wait", 0, 0), ("wait", 0, 1), ("make", 1, 0)]]


def everywhere(steps: list[list[toys.Step]], mailboxes: int, tokens: int) -> str | None:
    """What goes wrong under some interleaving of a toy (one warp per compute lane keeps the states few)."""
    program = toys.toy(steps, mailboxes)
    setup = oracle.Setup(heads=(False,) * tokens, warps=1)
    return oracle.explore(lambda: oracle.Machine(program, setup, [0] * tokens))


def order_rules(steps: list[list[toys.Step]], mailboxes: int) -> set[int]:
    """Rules of order that a toy breaks."""
    program = toys.toy(steps, mailboxes)
    report = validate(encode(program), None, None)
    assert "not checked: no order" not in report.text()
    return {v.rule for v in report.violations} & {2, 3, 4}


@pytest.mark.parametrize(
    ("steps", "fault", "rules"),
    [(CROSSED, "deadlock", {2}), (UNORDERED, "deadlock", {4}), (TOO_EARLY, "deadlock", {4})],
)
def test_known_toys(steps: list[list[toys.Step]], fault: str, rules: set[int]) -> None:
    assert (everywhere(steps, 2, 2) or "").startswith(fault)
    assert order_rules(steps, 2) == rules


def test_right_toy() -> None:
    steps = [[("wait", 1, 1), ("make", 0, 0)], [("make", 1, 1), ("wait", 0, 0)]]
    assert order_rules(steps, 2) <= {4}
    ring = [[("make", 0, 0), ("wait", 1, 0), ("make", 0, 1), ("wait", 1, 1)],
            [("wait", 0, 0), ("make", 1, 0), ("wait", 0, 1), ("make", 1, 1)]]  # fmt: skip
    assert order_rules(ring, 2) == set()
    assert everywhere(ring, 2, 2) is None


def test_accepted_toys_have_no_bad_interleaving() -> None:
    """Over random small programs: whatever keeps the rules of order never hangs, in any interleaving of two tokens."""
    accepted = rejected = confirmed = 0
    for seed in range(60):
        rng = random.Random(seed)
        steps, mailboxes = toys.random_steps(rng)
        rules = order_rules(steps, mailboxes)
        if rules:
            rejected += 1
            if rejected <= 10:
                confirmed += everywhere(steps, mailboxes, 2) is not None
            continue
        accepted += 1
        assert everywhere(steps, mailboxes, 2) is None, steps
    assert accepted >= 10
    assert confirmed >= 5


@pytest.mark.parametrize(
    "name", ["dropped_publish", "wrong_tag", "wrong_norm", "units_swapped", "dropped_split", "dropped_append"]
)
def test_oracle_sees_what_is_wrong(name: str) -> None:
    """The judge is not blind: in most runs it finds mutants that are wrong."""
    assert found_in(programs.case(), name) >= 4


PIECES = programs.case(
    intermediate=128, hidden=64, sms=2, knobs=Knobs(2, 2, down_pieces=4, max_splits=2, min_split_rows=16)
)


@pytest.mark.parametrize(
    "name",
    ["dropped_link", "doubled_link", "swapped_pieces", "wrong_accumulator", "accumulators_exchanged", "resume_flipped",
     "handed_over_early", "never_parked", "overlapping_pieces", "piece_gathered_from_elsewhere",
     "gather_after_its_piece", "dropped_append", "append_before_its_attend", "append_after_another_attend",
     "append_of_another_head", "append_of_another_split", "ring_of_one_slot"],
)  # fmt: skip
def test_oracle_sees_wrong_pieces_and_appends(name: str) -> None:
    assert found_in(PIECES, name) >= 3


NARROW = programs.case(
    intermediate=128,
    hidden=64,
    sms=2,
    knobs=Knobs(2, 2, qkv_rows=8, o_rows=8, down_rows=8, down_pieces=2, max_splits=2, min_split_rows=16),
)


@pytest.mark.parametrize("name", ["rows_of_a_multiplication", "rows_of_a_publication", "rows_of_a_matrix"])
def test_oracle_sees_wrong_rows_of_units(name: str) -> None:
    assert found_in(NARROW, name) >= 4


def found_in(case: programs.Case, name: str) -> int:
    """Of 8 mutants of a kind, those that one run shows to be wrong."""
    kind = next(k for k in mutations.KINDS if k.name == name)
    rng = random.Random(name)
    found = 0
    for _ in range(8):
        broken = mutations.mutate(case.tables, kind, rng)
        if broken is not None:
            setup = oracle.Setup(rng.choice([3, 15, 20]), (False, True, True))
            found += oracle.judge(broken, case.model, setup, oracle.randomly(rng)) is not None
    return found
