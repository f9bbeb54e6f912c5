"""The registry's rules of tasks, evaluated at a position: which packets a task touches, how many bytes it copies."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from schedule_ir.expr import Expr, ExprLike, evaluate
from schedule_ir.op import Access, How, Lane
from schedule_ir.program import Program, Section, Space, Task, Variant

Key = tuple[int, int, int]
"""A run of packets of one generation: first packet, count, tag phase."""


class Rules:
    """A program at a position. Answers are remembered: most tasks and expressions occur many times."""

    def __init__(self, program: Program, pos: int) -> None:
        self.program, self.pos, self.config = program, pos, program.config
        boxes = [buffer for buffer in program.buffers if buffer.space is Space.PACKETS]
        self._boxes = sorted(boxes, key=lambda box: box.offset)
        self._starts = [box.offset for box in self._boxes]
        self._packets: dict[tuple[int, tuple[int, ...]], list[Access]] = {}
        self._values: dict[Expr, int] = {}

    def tasks(self, sm: int, lane: Lane) -> Iterator[tuple[Task, Variant]]:
        """The tasks of a lane in order, body and head."""
        for section in (Section.BODY, Section.HEAD):
            for task in self.program.lanes.get((sm, lane, section), ()):
                yield task, self.program.variants[task.opcode]

    def packets(self, task: Task, variant: Variant) -> list[Access]:
        """The packet accesses of a task that happen at this position."""
        key = (task.opcode, task.args)
        if key not in self._packets:
            args = dict(zip(variant.spec.fields, task.args, strict=True))
            found = variant.spec.accesses(args, variant.constants, self.config)
            self._packets[key] = [access for access in found if access.how is How.PACKET and self._active(access)]
        return self._packets[key]

    def bytes(self, task: Task, variant: Variant) -> int:
        """Bytes that a task copies from device memory."""
        args = dict(zip(variant.spec.fields, task.args, strict=True))
        return self.value(variant.spec.cost(args, variant.constants, self.config).bytes)

    def key(self, access: Access) -> Key:
        """What a packet access touches."""
        return self.value(access.start), self.value(access.length), access.phase or 0

    def mailbox(self, packet: int) -> str:
        """The mailbox that a packet lies in."""
        index = bisect_right(self._starts, packet) - 1
        return self._boxes[index].name if index >= 0 else "?"

    def value(self, expression: ExprLike) -> int:
        """An index expression as a number."""
        if not isinstance(expression, Expr):
            return int(expression)
        if expression not in self._values:
            self._values[expression] = int(evaluate(expression, {"pos": self.pos}))
        return self._values[expression]

    def _active(self, access: Access) -> bool:
        return access.active is None or self.value(access.active) != 0
