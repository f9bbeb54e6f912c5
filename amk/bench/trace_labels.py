"""What the records of a timeline are: op, label for people, hand-off, bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from amk.cost.rules import Key, Rules
from schedule_ir.codec import LANES, SECTIONS
from schedule_ir.op import Lane
from schedule_ir.program import Program, Task, Variant


class Records:
    """The tasks of a program by record number, as the device tables count them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.tasks: list[Task] = []
        self.labels: list[str] = []
        self._copy_of: dict[int, int] = {}
        kinds = {
            (sm, offset): kind_of(tiles.name)
            for tiles in program.tiles
            for sm, offset in zip(tiles.sms, tiles.offsets, strict=True)
        }
        rules = Rules(program, program.config["max_seq"] - 1)
        for sm in range(program.sms):
            self._add(sm, kinds, rules)

    def _add(self, sm: int, kinds: dict[tuple[int, int], str], rules: Rules) -> None:
        copies: list[int] = []
        for lane in LANES:
            drained = iter(copies)
            for task, variant in self._lane(sm, lane):
                record = len(self.tasks)
                self.tasks.append(task)
                label = _label(task, variant, rules)
                if lane is Lane.STREAM and variant.spec.chunks is not None:
                    copies.append(record)
                    label = f"copy {kinds.get((sm, task.args[0]), '?')}" if variant.op == "copy_tape" else "copy K/V"
                elif lane is Lane.COMPUTE and variant.spec.chunks is not None:
                    source = next(drained, None)
                    if source is not None:
                        self._copy_of[record] = source
                        copied = self.labels[source]
                        label = copied.replace("copy", "multiply") if self._is_tape(source) else label
                self.labels.append(label)

    def _is_tape(self, record: int) -> bool:
        return self.variant(record).op == "copy_tape"

    def _lane(self, sm: int, lane: Lane) -> Iterator[tuple[Task, Variant]]:
        for section in SECTIONS:
            for task in self.program.lanes.get((sm, lane, section), ()):
                yield task, self.program.variants[task.opcode]

    def variant(self, record: int) -> Variant:
        """The op of a record."""
        return self.program.variants[self.tasks[record].opcode]

    def copied_bytes(self, record: int, pos: int) -> int:
        """Bytes that a record copies into the ring."""
        return self._rules(pos).bytes(self.tasks[record], self.variant(record))

    def drained_bytes(self, record: int, pos: int) -> int:
        """Bytes that a record takes out of the ring."""
        source = self._copy_of.get(record)
        return 0 if source is None else self.copied_bytes(source, pos)

    def hand_offs(self, record: int, pos: int) -> tuple[list[Key], list[Key]]:
        """Packets that a record polls, and those that it writes, in the token at `pos`."""
        rules = self._rules(pos)
        accesses = rules.packets(self.tasks[record], self.variant(record))
        reads = [rules.key(access) for access in accesses if not access.write and not access.previous_epoch]
        return reads, [rules.key(access) for access in accesses if access.write]

    def mailbox(self, packet: int) -> str:
        """The mailbox that a packet lies in."""
        return self._rules(0).mailbox(packet)

    @cache  # noqa: B019 - one instance per timeline
    def _rules(self, pos: int) -> Rules:
        return Rules(self.program, pos)


def kind_of(name: str) -> str:
    """The kind of matrix that tiles are of: layers.3.down.0.2, a piece of a part, is "down"."""
    return ".".join(part for part in name.split(".") if part != "layers" and not part.isdigit())


def _label(task: Task, variant: Variant, rules: Rules) -> str:
    """The op and the mailbox that it waits for or writes to."""
    accesses = rules.packets(task, variant)
    reads = [access for access in accesses if not access.write]
    chosen = reads[0] if reads else accesses[0] if accesses else None
    if chosen is None:
        return variant.op
    return f"{variant.op} {'<-' if reads else '->'} {rules.mailbox(rules.key(chosen)[0])}"
