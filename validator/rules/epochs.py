"""Rule 10: a tag names one value, for the longest launch and when the 32-bit tag wraps."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from validator import describe
from validator.columns import Columns
from validator.footprints import Footprints
from validator.report import Obligation, Violation
from validator.solver import Proof, prove

WRAP = 2**32


def longest(phases: int) -> int:
    """Tokens that may pass before a mailbox is cleared, so that no packet from long ago is taken for a new one."""
    return WRAP // phases - 2


def check(columns: Columns, packets: Footprints) -> tuple[list[Violation], list[Obligation]]:
    """Theorem: (epoch, phase) -> (epoch * phases + phase) mod 2^32 is one-to-one on any window of `longest` epochs,
    wherever it lies, and max_seq tokens fit the window. So equality with the tag proves which value it is.
    """
    config = columns.config
    bad = np.nonzero((packets.phase < 0) | (packets.phase >= config["phases"]))[0]
    if len(bad):
        text = describe.task(columns, int(packets.task[bad[0]]))
        message = f"phase {packets.phase[bad[0]]} is not below phases = {config['phases']}: its tag is another epoch's"
        return [Violation(10, message, text)], []
    if config["max_seq"] > longest(config["phases"]):
        return [Violation(10, f"{config['max_seq']} tokens of {config['phases']} phases do not fit 32-bit tags")], []
    proofs = _proofs(config["phases"])
    problems = [
        Violation(10, f"{proof.obligation.name}: {proof.obligation.status}", f"counterexample: {proof.counterexample}")
        for proof in proofs
        if not proof.ok
    ]
    return problems, [proof.obligation for proof in proofs]


@lru_cache(maxsize=256)
def _proofs(phases: int) -> tuple[Proof, ...]:
    """Both over mathematical integers: two tags are equal mod 2^32 only if epoch and phase are, in the window."""
    import z3

    first, second, p, q, turns = z3.Ints("epoch later_epoch phase later_phase wraps")
    tags = first * phases + p + WRAP * turns == second * phases + q
    ranges = [first >= 0, second >= first, p >= 0, p < phases, q >= 0, q < phases]
    window = second - first <= longest(phases)
    same = z3.And(first == second, p == q)
    adjacent = prove(
        "rule 10: tags of neighbouring epochs differ, wrap included", [*ranges, second - first <= 1, tags], same
    )
    return adjacent, prove(f"rule 10: tags differ within {longest(phases)} epochs", [*ranges, window, tags], same)
