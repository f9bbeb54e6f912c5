"""Hand-made programs of a few tasks: hand-offs without a model, so the rules about meaning do not hold."""

from __future__ import annotations

import random
from collections.abc import Sequence

from schedule_ir import Buffer, Lane, Program, Section, Space, Task, Variant
from schedule_ir.program import TensorTiles
from tests.validator import programs

VARIANTS = (
    Variant("copy_tape", {"ksteps": 1, "chunk_ksteps": 1}),
    Variant("gather", {"ksteps": 1, "length": 16}),
    Variant("gemv", {"ksteps": 1, "chunk_ksteps": 1, "unit_rows": 16}),
    Variant("publish", {"scaled": 0, "gated": 0, "biased": 0, "unit_rows": 16}),
)
COPY, GATHER, GEMV, PUBLISH = range(4)
Step = tuple[str, int, int]
"""("wait" or "make", mailbox of 16 packets, phase)."""


def toy(steps: Sequence[Sequence[Step]], mailboxes: int, phases: int = 2) -> Program:
    """One SM per sequence: a wait gathers a mailbox, a make multiplies a unit and publishes it."""
    lanes: dict[tuple[int, Lane, Section], tuple[Task, ...]] = {}
    tapes = []
    for sm, sequence in enumerate(steps):
        makes = [(box, phase) for kind, box, phase in sequence if kind == "make"]
        tapes.append(len(makes))
        lanes[sm, Lane.STREAM, Section.BODY] = tuple(Task(COPY, (unit, 3, 4)) for unit in range(len(makes)))
        lanes[sm, Lane.COMPUTE, Section.BODY] = tuple(
            Task(GATHER, (16 * box, phase)) if kind == "wait" else Task(GEMV, ()) for kind, box, phase in sequence
        )
        lanes[sm, Lane.EPILOGUE, Section.BODY] = tuple(Task(PUBLISH, (16 * box, phase, 0)) for box, phase in makes)
    base = programs.case().program
    config = {**base.config, "sms": len(steps), "phases": phases, "packets": 16 * mailboxes}
    kept = [b for b in base.buffers if b.space in (Space.KV, Space.CONSTANT, Space.SHARED)]
    buffers = [Buffer(f"box{i}", Space.PACKETS, 16 * i, 16, 8) for i in range(mailboxes)]
    buffers += [Buffer(f"tape.{sm}", Space.TAPE, 0, size, 512) for sm, size in enumerate(tapes)]
    tiles = tuple(
        TensorTiles(f"m{sm}", (f"m{sm}",), False, (16 * size,), (0, 16), 1, (sm,) * size, tuple(range(size)))
        for sm, size in enumerate(tapes)
        if size
    )
    return Program(
        base.target, config, base.scalars, base.kv_dtype, (*buffers, *kept), VARIANTS, lanes, tiles, base.norms
    )  # fmt: skip


def random_steps(rng: random.Random) -> tuple[list[list[Step]], int]:
    """Two SMs make values in turn; whether one waits for the other's last value before it makes the next is chance."""
    mailboxes, count = rng.choice([(2, 2), (2, 3), (2, 4), (3, 3)])
    steps: list[list[Step]] = [[], []]
    care = rng.choice([0.6, 0.9, 1.0])
    for number in range(count):
        maker = number % 2
        before = ("wait", (number - 1) % mailboxes, (number - 1) // mailboxes)
        if number and rng.random() < care:
            steps[maker].append(before)
        steps[maker].append(("make", number % mailboxes, number // mailboxes))
    if rng.random() < care:
        steps[count % 2].append(("wait", (count - 1) % mailboxes, (count - 1) // mailboxes))
    if rng.random() < 0.2:
        rng.shuffle(rng.choice(steps))
    return steps, mailboxes
