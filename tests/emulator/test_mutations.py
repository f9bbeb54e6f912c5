"""One deliberate mistake in a kernel header each: the emulator must show it.

A mutation that no longer applies, because the header was rewritten, is replaced by one of the same kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from amk.errors import DeviceError
from tests.emulator.cases import CASES
from tests.emulator.compare import BOUNDS, decode, error, expected
from tests.emulator.machine import emulated, library_of

STEPS, SEEDS = 18, 4
"""Row 16 is appended by the SM of the first split, and read a token later by that of the second."""


@dataclass(frozen=True)
class Mutation:
    """In `header` what `pattern` (a regular expression) finds first becomes `instead`; seen in this case of `CASES`."""

    header: str
    pattern: str
    instead: str
    hangs: bool = False
    case: str = "llama"

    def edit(self, name: str, text: str) -> str:
        if name != self.header:
            return text
        changed, count = re.subn(self.pattern, self.instead, text, count=1)
        assert count == 1, f"{self.header} has no {self.pattern} any more: choose another mutation of this kind"
        return changed


MUTATIONS = {
    "partial results are not aligned": Mutation("scratch.cuh", r"kPartialOffset =", "kPartialOffset = 4 +"),
    "weights are read before they land": Mutation("gemv.cuh", r"wait\(lane, full_barrier\([^;]*;", ""),
    "a ring slot is filled while it is read": Mutation("stream.cuh", r"if \(!wait_free\([^;]*;", "", case="pieces"),
    "rows are read before they are appended": Mutation("stream.cuh", r"(?<= )poll\(lane, lane.params[^;]*;", ""),
    "a unit's slots are given back before it is loaded": Mutation(
        "gemv.cuh",
        r"(chunks\[i\]\.load\(lane, )lane\.next\);\s*lane\.release_ring_slot\(\);",
        r"const RingCursor at = lane.next; wait(lane, full_barrier(at.slot), at.parity); lane.release_ring_slot();"
        r" while (!mbarrier_try(full_barrier(at.slot), at.parity ^ 1)) { if (lane.next.slot == 99) break; } \1at);",
        case="pieces",
    ),
    "the epilogue does not wait for the partial sums": Mutation("epilogue.cuh", r"wait_at_barrier<[^;]*;", ""),
    "a ring slot is never given back": Mutation("compute_lane.cuh", r"mbarrier_arrive\(empty_\w+\(", "(void)((", True),
    "the rotation goes the other way": Mutation("attend.cuh", r"\.x - b \* angle", ".x + b * angle"),
    "a stale packet has the right tag": Mutation("lane.cuh", r"\(params\.epoch \+ step\) \* kPhases", "kPhases"),
}


def shows(mutation: Mutation, folder: Path) -> str:
    """What is wrong with the mutated kernel's decode; empty if nothing is."""
    case, model = CASES[mutation.case], CASES[mutation.case].model()
    program = case.program(model)
    library, wanted = library_of(program, folder, mutation.edit), expected(program, model, STEPS)
    for seed in range(SEEDS):
        with emulated(program, model, library, seed) as machine:
            try:
                got = decode(machine, STEPS)
            except DeviceError as failure:
                return str(failure)
        worst = error(got, wanted)
        if not worst < BOUNDS[case.kv_dtype]:
            return f"wrong logits: {worst:.1e}"
    return ""


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_is_shown(name: str, folder: Path) -> None:
    mutation = MUTATIONS[name]
    seen = shows(mutation, folder)
    assert seen
    if "aligned" in name:
        assert re.search(r"\.cuh:\d+: an access at \w+ is not aligned to \d+ bytes", seen), seen
    if mutation.hangs:
        assert re.match(r"the kernel hung: SM \d, lane \w+, task \d+ \(\w+\)( or .*)?, step \d", seen), seen
