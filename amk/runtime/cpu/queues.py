"""The FIFOs inside an SM: which chunks in the ring, and which epilogue task, belong to which multiplication.

The ring and the reduction slots are first in, first out, and their lanes wait for nothing but the other end of them.
So what meets what does not depend on time: the n-th copy feeds the n-th consumer, the n-th product goes to the n-th
epilogue task that takes one. A section has to match on its own, because HEAD does not run for every token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from amk.errors import RejectedProgramError
from schedule_ir.op import Lane
from schedule_ir.program import Program, Section
from schedule_ir.registry import REGISTRY


class Instruction(NamedTuple):
    """A task by names. `tape_offset` is the atom of its unit if it multiplies one, else -1."""

    sm: int
    section: Section
    number: int
    op: str
    args: Mapping[str, int]
    constants: Mapping[str, int]
    tape_offset: int = -1

    def __str__(self) -> str:
        fields = ", ".join(f"{name} {value}" for name, value in {**self.constants, **self.args}.items())
        lane = REGISTRY[self.op].lane
        return f"SM {self.sm}, {lane} lane, {self.section} task {self.number}: {self.op}({fields})"


class Queues(NamedTuple):
    """One SM's work in one section: the epilogue task i may run once `due[i]` products are made."""

    compute: list[Instruction]
    epilogue: list[Instruction]
    due: list[int]


def match_queues(program: Program, sm: int, section: Section) -> Queues:
    """Match the lanes of an SM. Raises RejectedProgramError naming the first task that does not fit."""
    lanes = [_instructions(program, sm, lane, section) for lane in (Lane.STREAM, Lane.COMPUTE, Lane.EPILOGUE)]
    stream, compute, epilogue = lanes
    copies = [task for task in stream if REGISTRY[task.op].chunks is not None]
    users = [task for task in compute if REGISTRY[task.op].chunks is not None]
    _check_lengths("ring", copies, users)
    for copy, user in zip(copies, users, strict=True):
        _check_contents(copy, user)
        compute[user.number] = user._replace(tape_offset=copy.args.get("offset", -1))
    makers = [task for task in compute if REGISTRY[task.op].reduce_slots > 0]
    takers = [task for task in epilogue if REGISTRY[task.op].reduce_slots < 0]
    _check_lengths("reduction queue", makers, takers)
    return Queues(compute, epilogue, _due(epilogue))


def _instructions(program: Program, sm: int, lane: Lane, section: Section) -> list[Instruction]:
    variants = [(v.op, v.spec.fields, v.constants) for v in program.variants]
    found = []
    for index, task in enumerate(program.lanes.get((sm, lane, section), ())):
        op, fields, constants = variants[task.opcode]
        found.append(Instruction(sm, section, index, op, dict(zip(fields, task.args, strict=True)), constants))
    return found


def _check_lengths(queue: str, producers: list[Instruction], consumers: list[Instruction]) -> None:
    if len(producers) == len(consumers):
        return
    more, what = (producers, "is never taken") if len(producers) > len(consumers) else (consumers, "gets nothing")
    orphan = more[min(len(producers), len(consumers))]
    raise RejectedProgramError(
        f"{orphan}: {what}; the {queue} has {len(producers)} producers and {len(consumers)} consumers"
    )


def _check_contents(copy: Instruction, user: Instruction) -> None:
    """A multiplication needs the chunks of one unit of its own size, attention the rows of its own split."""
    if user.op == "attend":
        same = all(copy.args.get(key) == user.args[key] for key in ("kv_head", "split"))
        fits = copy.op == "copy_kv" and same and copy.constants["window"] == user.constants["window"]
    else:
        fits = copy.op == "copy_tape" and copy.constants.items() <= user.constants.items()
    if not fits:
        raise RejectedProgramError(f"{user}: the ring holds what {copy} put there")


def _due(epilogue: list[Instruction]) -> list[int]:
    due, products = [], 0
    for task in epilogue:
        products += REGISTRY[task.op].reduce_slots < 0
        due.append(products)
    return due
