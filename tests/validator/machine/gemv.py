# ruff: noqa: ARG002 (every op has the same signature)
"""The compute lane's multiplications: draining the ring, accumulators, reduction slots."""

from __future__ import annotations

from typing import Any

from tests.validator.machine.base import Base
from tests.validator.machine.state import Agent, Args, Sm, Steps

Link = tuple[Any, Any]
"""(atoms of a unit by chunk, and rows that it is taken to have; x that they were multiplied with)."""


class Gemv(Base):
    """Sums are tuples of links until the epilogue lane makes them a number."""

    def drain(self, sm: Sm, warp: int) -> Steps:
        """One chunk, released at once."""
        content = yield from self.load(sm, warp)
        sm.ring_released[warp] += 1
        return content

    def load(self, sm: Sm, warp: int) -> Steps:
        chunk = sm.ring_next[warp]
        yield lambda: sm.landed > chunk
        sm.ring_next[warp] += 1
        return sm.ring[chunk % self.config["ring_stages"]]

    def multiply(self, sm: Sm, warp: int, a: Args) -> Steps:
        """The link of a whole unit or piece: a chunk is loaded before the one before it is released."""
        atoms = []
        for first in range(0, a["ksteps"], a["chunk_ksteps"]):
            content = yield from self.load(sm, warp)
            sm.ring_released[warp] += int(first > 0)
            atoms.append(tuple(content[1]) if content[0] != "kv" else "K/V")
        sm.ring_released[warp] += 1
        return ((tuple(atoms), a["unit_rows"]), sm.x[warp])

    def parked(self, sm: Sm, warp: int, accumulator: int) -> tuple[Link, ...]:
        self.check_range(accumulator, 1, self.config["accumulators"], "accumulator")
        return sm.accumulators[warp].get(accumulator, (("unset", None),))

    def hand_over(self, number: int, warp: int, links: tuple[Link, ...]) -> Agent:
        sm = self.sm[number]
        slot = sm.reduce_given[warp]
        yield lambda: slot < sm.reduce_taken + self.config["reduce_slots"]
        sm.reduce.setdefault(slot, [None] * self.setup.warps)[warp] = (number, links, sm.squares[warp])
        sm.reduce_given[warp] += 1

    def gemv(self, number: int, warp: int, step: int, a: Args) -> Agent:
        link = yield from self.multiply(self.sm[number], warp, a)
        yield from self.hand_over(number, warp, (link,))

    def gemv_park(self, number: int, warp: int, step: int, a: Args) -> Agent:
        sm = self.sm[number]
        before = self.parked(sm, warp, a["accumulator"])
        link = yield from self.multiply(sm, warp, a)
        sm.accumulators[warp][a["accumulator"]] = (*before, link) if a["resume"] else (link,)

    def gemv_resume(self, number: int, warp: int, step: int, a: Args) -> Agent:
        sm = self.sm[number]
        before = self.parked(sm, warp, a["accumulator"])
        link = yield from self.multiply(sm, warp, a)
        yield from self.hand_over(number, warp, (*before, link))
