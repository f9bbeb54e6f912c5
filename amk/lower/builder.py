"""Collects tasks lane by lane while the lowering walks the model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from amk.lower.sizes import Matrix
from schedule_ir.op import Lane
from schedule_ir.program import Buffer, Section, Space, Task, TensorTiles, Variant
from schedule_ir.registry import REGISTRY

PACKET_ALIGN = 32
"""Mailboxes start on a 256-byte boundary, so that no two share a sector."""


class Builder:
    """Mutable state of one lowering: variants, mailboxes, lanes, tape cursors and tile tables."""

    def __init__(self, sms: int) -> None:
        self.sms = sms
        self.section = Section.BODY
        self.variants: list[Variant] = []
        self.lanes: dict[tuple[int, Lane, Section], list[Task]] = defaultdict(list)
        self.mailboxes: list[Buffer] = []
        self.tiles: list[TensorTiles] = []
        self.tape_atoms = [0] * sms
        self._dealt: list[int] = []
        self._opcodes: dict[tuple[str, tuple[int, ...]], int] = {}

    def add(self, sm: int, op: str, constants: tuple[int, ...] = (), **fields: int) -> None:
        """Append a task of `op` with these constants and fields to its lane of an SM."""
        self.insert(sm, self.length(sm, REGISTRY[op].lane), op, constants, **fields)

    def insert(self, sm: int, at: int, op: str, constants: tuple[int, ...] = (), **fields: int) -> None:
        """Put a task of `op` in its lane of an SM, before the one that is number `at` now."""
        spec = REGISTRY[op]
        opcode = self._opcode(op, constants)
        task = Task(opcode, tuple(fields[name] for name in spec.fields))
        self.lanes[sm, spec.lane, self.section].insert(at, task)

    def length(self, sm: int, lane: Lane) -> int:
        """How many tasks a lane of an SM has so far in this section."""
        return len(self.lanes.get((sm, lane, self.section), ()))

    def _opcode(self, op: str, constants: tuple[int, ...]) -> int:
        key = (op, constants)
        if key not in self._opcodes:
            self._opcodes[key] = len(self.variants)
            names = REGISTRY[op].constants
            self.variants.append(Variant(op, dict(zip(names, constants, strict=True))))
        return self._opcodes[key]

    def mailbox(self, name: str, packets: int) -> int:
        """Reserve a mailbox; its first packet."""
        end = self.mailboxes[-1].end if self.mailboxes else 0
        offset = -(-end // PACKET_ALIGN) * PACKET_ALIGN
        self.mailboxes.append(Buffer(name, Space.PACKETS, offset, packets, 8))
        return offset

    def deal(self, units: int) -> list[int]:
        """The SM of each of `units` units: whole rounds, and what is left over to the SMs with the shortest tapes."""
        return self._in_rounds(units, lambda sm: (self.tape_atoms[sm],))

    def deal_spare(self, tasks: int) -> list[int]:
        """The same for tasks that follow the units dealt last: first to the SMs that have the fewest of those."""
        busy = Counter(self._dealt)
        return self._in_rounds(tasks, lambda sm: (busy[sm], self.tape_atoms[sm]))

    def _in_rounds(self, count: int, rank: Callable[[int], tuple[int, ...]]) -> list[int]:
        order = sorted(range(self.sms), key=rank)
        self._dealt = [order[number % self.sms] for number in range(count)]
        return self._dealt

    def place(
        self, name: str, tensors: tuple[str, ...], rows: tuple[int, ...], columns: tuple[int, int], shape: Matrix,
        owners: list[int], first_row: int, interleaved: bool = False,
    ) -> TensorTiles:  # fmt: skip
        """Put units of a matrix, of the packed rows from `first_row` on, at the ends of their owners' tapes."""
        offsets = []
        for sm in owners:
            offsets.append(self.tape_atoms[sm])
            self.tape_atoms[sm] += shape.atoms
        tiles = TensorTiles(
            name, tensors, interleaved, rows, columns, shape.ksteps, tuple(owners), tuple(offsets),
            unit_rows=shape.rows, first_row=first_row,
        )  # fmt: skip
        self.tiles.append(tiles)
        return tiles
