"""The tasks of one lane in words: table integers as mailboxes, layers, heads and matrices."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from schedule_ir.op import Lane
from schedule_ir.program import Program, Section, Space, Task, Variant

MAILBOX_FIELDS = frozenset({"src", "dst", "q_src", "k_src", "v_src", "part_src", "part_dst", "out_dst"})


def lane_lines(program: Program, sm: int, lane: Lane) -> list[str]:
    """One line per task of a lane: its number in the section, the op with its constants, its fields decoded."""
    reader = TaskReader(program, sm)
    lines = []
    for section in Section:
        tasks = program.lanes.get((sm, lane, section), ())
        lines += [f"  {section.value:4} {index:5}  {reader.text(task)}" for index, task in enumerate(tasks)]
    return lines or ["  no tasks"]


class TaskReader:
    """Says what the fields of the tasks of an SM mean."""

    def __init__(self, program: Program, sm: int) -> None:
        self.program = program
        boxes = [buffer for buffer in program.buffers if buffer.space is Space.PACKETS]
        self._boxes = sorted(boxes, key=lambda box: box.offset)
        self._starts = [box.offset for box in self._boxes]
        self._units = {
            offset: f"{tiles.name} unit {unit}"
            for tiles in program.tiles
            for unit, (owner, offset) in enumerate(zip(tiles.sms, tiles.offsets, strict=True))
            if owner == sm
        }

    def text(self, task: Task) -> str:
        """The op, its constants, then every field as name and meaning."""
        variant = self.program.variants[task.opcode]
        parts = [name for name in (self._op(variant), *self._fields(variant, task)) if name]
        return "  ".join(parts)

    def _op(self, variant: Variant) -> str:
        constants = ", ".join(str(value) for value in variant.constants.values())
        return f"{variant.op}<{constants}>" if constants else variant.op

    def _fields(self, variant: Variant, task: Task) -> Iterator[str]:
        for name, value in zip(variant.spec.fields, task.args, strict=True):
            if name in MAILBOX_FIELDS:
                yield f"{name} {self.mailbox(value)}"
            elif name == "bias":
                yield f"bias {value}" if variant.constants["biased"] else ""
            else:
                meaning = self._meanings().get(name)
                yield f"{name} {meaning(value)}" if meaning else f"{name} {value}"

    def _meanings(self) -> dict[str, Callable[[int], str]]:
        return {"phase": self.phase, "norm": self.norm, "kv_head": self.kv_head, "offset": self.unit}

    def mailbox(self, packet: int) -> str:
        """A packet by the name of its mailbox and its place in it."""
        index = bisect_right(self._starts, packet) - 1
        if index < 0:
            return str(packet)
        return f"{self._boxes[index].name}+{packet - self._boxes[index].offset}"

    def phase(self, phase: int) -> str:
        """The layer that a tag belongs to."""
        return f"{phase} (layer {phase})" if phase < self.program.config["layers"] else f"{phase} (end of token)"

    def norm(self, row: int) -> str:
        """A row of the norms array by its tensor."""
        return f"{row} ({self.program.norms[row]})" if row < len(self.program.norms) else str(row)

    def kv_head(self, row: int) -> str:
        """A row of the K/V cache by layer and head."""
        layer, head = divmod(row, self.program.config["kv_heads"])
        return f"{row} (layer {layer}, head {head})"

    def unit(self, offset: int) -> str:
        """An atom of the tape by the unit that starts there."""
        return f"{offset} ({self._units[offset]})" if offset in self._units else str(offset)
