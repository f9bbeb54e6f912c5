# ruff: noqa: ARG002 (every op has the same signature)
"""The stream lane, and the copy engine that it commands."""

from __future__ import annotations

from typing import Any

from tests.validator.machine.base import Base
from tests.validator.machine.state import Agent, Args, BadProgramError, Sm


class Stream(Base):
    """Copies into the ring, landed by the engine at moments of its own."""

    def issue(self, sm: Sm, source: tuple[Any, ...]) -> Agent:
        stages = self.config["ring_stages"]
        yield lambda: sm.issued < stages + min(sm.ring_released)
        sm.pending.append(source)
        sm.issued += 1

    def engine(self, number: int) -> Agent:
        """Lands copies in order, each at a moment of its own; ends with the run."""
        sm = self.sm[number]
        while True:
            yield lambda: bool(sm.pending)
            kind, *what = sm.pending.pop(0)
            content = what if kind == "tape" else [kind, [self.kv.get(row) for row in what[0]], what[0]]
            sm.ring[sm.landed % self.config["ring_stages"]] = content
            sm.landed += 1

    def copy_tape(self, number: int, warp: int, step: int, a: Args) -> Agent:
        size = self.program.buffer(f"tape.{number}").size
        self.check_range(a["offset"], a["ksteps"], size, "tape")
        for first in range(0, a["ksteps"], a["chunk_ksteps"]):
            atoms = range(a["offset"] + first, a["offset"] + min(first + a["chunk_ksteps"], a["ksteps"]))
            if len(atoms) * 512 > self.config["slot_bytes"]:
                raise BadProgramError("chunk larger than a slot")
            yield from self.issue(self.sm[number], ("tape", number, atoms))

    def kv_rows(self, pos: int, split: int, window: int) -> tuple[int, int]:
        """First cached row of a split and first after it: runs of rows, or a window's blocks shared out evenly."""
        rows, count = self.split(pos)
        if not window:
            return min(pos, split * rows), min(pos, (split + 1) * rows)
        first = max(0, pos + 1 - window) // 16
        blocks = -(-pos // 16) - first
        begin, end = (16 * (first + blocks * s // count) for s in (split, split + 1))
        return min(pos, begin), min(pos, end)

    def kv_chunks(self, pos: int, split: int, window: int) -> list[range]:
        begin, end = self.kv_rows(pos, split, window) if split < self.split(pos)[1] else (pos, pos)
        per = 16 * (
            self.config["slot_bytes"] // (32 * self.config["head_dim_padded"] * self.config["kv_element_bytes"])
        )
        return [range(first, min(first + per, -(-end // 16) * 16)) for first in range(begin, end, per)]

    def copy_kv(self, number: int, warp: int, step: int, a: Args) -> Agent:
        base = a["kv_head"] * self.config["max_seq_padded"]
        for rows in self.kv_chunks(self.pos(step), a["split"], a["window"]):
            self.check_range(base + rows.start, len(rows), self.program.buffer("kv").size, "kv")
            yield from self.issue(self.sm[number], ("kv", [base + row for row in rows]))

    def kv_acquire(self, number: int, warp: int, step: int, a: Args) -> Agent:
        if step:
            yield self.poll(a["src"], self.program.sms, self.tag(step - 1, a["phase"]))
