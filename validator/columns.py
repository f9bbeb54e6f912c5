"""The decoded device tables as columns: one NumPy array per property of a task, no object per task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from schedule_ir.program import Program

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

STREAM, COMPUTE, EPILOGUE = range(3)
BODY, HEAD = range(2)
LANE_NAMES = ("stream", "compute", "epilogue")
SECTION_NAMES = ("body", "head")


@dataclass(frozen=True, eq=False)
class Columns:
    """Tasks in record order: SM by SM, lane by lane, body before head.

    `program` is the header without its tasks. `index` counts the tasks of a lane over both sections; `length[sm, lane]`
    is how many there are, `body_length` how many of them are body.
    """

    program: Program
    words: Ints
    sm: Ints
    lane: Ints
    section: Ints
    index: Ints
    length: Ints
    body_length: Ints

    @property
    def config(self) -> Mapping[str, int]:
        """Sizes and knobs."""
        return self.program.config

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return len(self.words)

    @property
    def sms(self) -> int:
        """CTAs of the grid."""
        return self.program.config["sms"]

    @cached_property
    def opcode(self) -> Ints:
        """The variant of each task."""
        return np.ascontiguousarray(self.words[:, 0])

    @cached_property
    def lane_begin(self) -> Ints:
        """First record of each [sm, lane]."""
        ends = np.cumsum(self.length.reshape(-1))
        return (ends - self.length.reshape(-1)).reshape(self.length.shape)

    @cached_property
    def op_names(self) -> tuple[str, ...]:
        """The op of each variant."""
        return tuple(variant.op for variant in self.program.variants)

    def of(self, *ops: str) -> Ints:
        """Tasks of these ops, in record order."""
        wanted = np.array([name in ops for name in self.op_names], bool)
        return np.nonzero(wanted[self.opcode])[0]

    def field(self, name: str, tasks: Ints) -> Ints:
        """That field of tasks, which may be of several ops that all have it."""
        if not len(tasks):
            return np.zeros(0, np.int64)
        return self.words[tasks, self._places[name][self.opcode[tasks]]]

    @cached_property
    def _places(self) -> dict[str, Ints]:
        """The word of each field in the records of each variant."""
        places: dict[str, Ints] = {}
        for number, variant in enumerate(self.program.variants):
            for word, name in enumerate(variant.spec.fields, 1):
                places.setdefault(name, np.zeros(len(self.program.variants), np.int64))[number] = word
        return places

    def constant(self, name: str, tasks: Ints, missing: int = 0) -> Ints:
        """That compile-time constant of the tasks' variants."""
        values = np.array([v.constants.get(name, missing) for v in self.program.variants], np.int64)
        return values[self.opcode[tasks]]
