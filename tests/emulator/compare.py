"""A decode on the emulator against the CPU runtime, which executes the same tables in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from amk.model.source import Model
from amk.runtime.cpu import CpuMachine
from amk.runtime.machine import Launch, Machine
from schedule_ir import Program, encode
from tests.runtime.models import relative_error, tokens_of

GIVEN, STEPS = 24, 36
"""Across the edges of blocks at 16 and 32, and of splits at 17 and 33; then sampled tokens."""

BOUNDS = {"fp32": 1e-4, "fp16": 1e-3, "bf16": 5e-3}
"""Of the relative error of logits. Rounded caches differ in a unit now and then: see docs/design.md, Numerics."""


@dataclass(frozen=True)
class Decoded:
    """What a decode gave: logits float32 [steps, vocab], and the cached rows (see `Machine.kv_rows`)."""

    tokens: list[int]
    logits: npt.NDArray[np.float32]
    rows: npt.NDArray[np.float32]

    def same_bits(self, other: Decoded) -> bool:
        """Whether everything is equal to the last bit."""
        return self.logits.tobytes() == other.logits.tobytes() and self.rows.tobytes() == other.rows.tobytes()


def decode(machine: Machine, steps: int = STEPS, sizes: tuple[int, ...] = ()) -> Decoded:
    """Decode from position 0 in launches of these `sizes`, by default in one; the first GIVEN tokens are given."""
    ids: list[int] = tokens_of(GIVEN, machine.vocab)
    logits: list[npt.NDArray[np.float32]] = []
    for size in sizes or (steps,):
        done = sum(len(part) for part in logits)
        result = machine.run(Launch(done, ids[done:], size, 0, want_logits=True), lambda _: None)
        assert result.logits is not None
        logits.append(result.logits)
        ids += result.tokens
    return Decoded(ids[GIVEN:], np.concatenate(logits), machine.kv_rows(0, steps))


def expected(program: Program, model: Model, steps: int = STEPS) -> Decoded:
    """The same decode on the CPU runtime."""
    return decode(CpuMachine(encode(program), model), steps)


def error(got: Decoded, wanted: Decoded) -> float:
    """The largest relative error of the logits of a step."""
    return relative_error(got.logits, wanted.logits)
