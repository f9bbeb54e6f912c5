"""Units that are multiplied part by part: the sums that wait in an SM's accumulators between two parts."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from amk.errors import RejectedProgramError
from amk.runtime.cpu.queues import Instruction
from schedule_ir.program import Program

Weights = tuple[tuple[str, ...], int]
"""Tensors and the number of a unit in them: what the parts of a unit have in common."""


class Product(NamedTuple):
    """A task that multiplies, and the node of the x that it finds in its SM."""

    x: int
    task: Instruction


Chain = tuple[Product, ...]
"""The products of one unit, in the order in which they are added; one, where a unit is multiplied in one go."""


class Chains:
    """The chains that have begun and not ended, by SM and accumulator. Its errors are RejectedProgramErrors."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._open: dict[tuple[int, int], Chain] = {}

    def park(self, product: Product) -> None:
        """Begin the chain of a gemv_park or, if it resumes one, add to it. Raises where the chain is broken."""
        place = self._place(product.task)
        if product.task.constants["resume"]:
            self._open[place] = self._extended(place, product)
            return
        if place in self._open:
            raise RejectedProgramError(
                f"accumulator {place[1]} still holds the sums of {self._open[place][-1].task}; "
                "take them with gemv_resume before another unit starts there"
            )
        self._open[place] = (product,)

    def resume(self, product: Product) -> Chain:
        """The whole chain that a gemv_resume ends. Raises where it is broken."""
        place = self._place(product.task)
        chain = self._extended(place, product)
        del self._open[place]
        return chain

    def check_closed(self) -> None:
        """Raise if a chain has not ended: the section that follows may not run, or starts with empty accumulators."""
        for (_, accumulator), chain in self._open.items():
            raise RejectedProgramError(
                f"{chain[-1].task}: its sums are still in accumulator {accumulator} where the section ends; "
                "a gemv_resume has to take them"
            )

    def _place(self, task: Instruction) -> tuple[int, int]:
        accumulator, count = task.args["accumulator"], self._program.config["accumulators"]
        if not 0 <= accumulator < count:
            raise RejectedProgramError(f"accumulator {accumulator} is not one of the {count} there are")
        return task.sm, accumulator

    def _extended(self, place: tuple[int, int], product: Product) -> Chain:
        if place not in self._open:
            raise RejectedProgramError(
                f"accumulator {place[1]} is empty; a gemv_park without resume has to come first in this section"
            )
        chain = self._open[place]
        before, now = (self._weights_of(p.task) for p in (chain[-1], product))
        if before != now:
            raise RejectedProgramError(
                f"multiplies {_text(now)}, but accumulator {place[1]} holds sums of {_text(before)}"
            )
        return (*chain, product)

    def _weights_of(self, task: Instruction) -> Weights:
        found = self._weights.get((task.sm, task.tape_offset))
        if found is None:
            raise RejectedProgramError(f"no unit begins at atom {task.tape_offset} of the tape of SM {task.sm}")
        return found

    @cached_property
    def _weights(self) -> dict[tuple[int, int], Weights]:
        return {
            place: (tiles.tensors, unit)
            for tiles in self._program.tiles
            for unit, place in enumerate(zip(tiles.sms, tiles.offsets, strict=True))
        }


def _text(weights: Weights) -> str:
    return f"unit {weights[1]} of {' and '.join(weights[0])}"
