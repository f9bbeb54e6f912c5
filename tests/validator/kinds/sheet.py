"""Device tables, taken apart for editing."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from schedule_ir import REGISTRY, Tables
from schedule_ir.codec import LANES, SECTIONS

Row = list[int]
Key = tuple[int, int, int]
"""(SM, lane, section)."""


class Sheet:
    """Device tables, taken apart for editing."""

    def __init__(self, tables: Tables, rng: random.Random) -> None:
        self.rng = rng
        self.header: dict[str, Any] = {
            key: dict(value) if isinstance(value, dict) else [dict(v) if isinstance(v, dict) else v for v in value]
            if isinstance(value, list) else value
            for key, value in tables.header.items()
        }  # fmt: skip
        rows = tables.records.tolist()
        self.lanes: dict[Key, list[Row]] = {}
        for sm, lanes in enumerate(tables.ranges.tolist()):
            for lane, sections in enumerate(lanes):
                for section, (begin, end) in enumerate(sections):
                    self.lanes[sm, lane, section] = rows[begin:end]
        self.ops = [variant["op"] for variant in self.header["variants"]]

    def tables(self) -> Tables:
        """Put together again."""
        sms = 1 + max(key[0] for key in self.lanes)
        ranges = np.zeros((sms, len(LANES), len(SECTIONS), 2), np.int32)
        rows: list[Row] = []
        for key in sorted(self.lanes):
            begin = len(rows)
            rows += self.lanes[key]
            ranges[key] = begin, len(rows)
        return Tables(self.header, np.array(rows, np.int64).reshape(-1, 12).astype(np.int32), ranges)

    def find(self, *ops: str) -> list[tuple[Key, int]]:
        """(lane, place) of every task of these ops."""
        return [(key, i) for key, rows in self.lanes.items() for i, row in enumerate(rows) if self.ops[row[0]] in ops]

    def any(self, *ops: str) -> tuple[list[Row], int, Row] | None:
        """A random task of these ops: its lane, place and row."""
        found = self.find(*ops)
        if not found:
            return None
        key, place = self.rng.choice(found)
        return self.lanes[key], place, self.lanes[key][place]

    def column(self, row: Row, name: str) -> int:
        """Which word of a row holds the field."""
        return REGISTRY[self.ops[row[0]]].fields.index(name) + 1

    def buffer(self, name: str) -> dict[str, Any]:
        """The header's entry of a buffer."""
        return next(b for b in self.header["buffers"] if b["name"] == name)

    def constants(self, row: Row) -> dict[str, int]:
        """Compile-time constants of a task."""
        constants: dict[str, int] = self.header["variants"][row[0]]["constants"]
        return constants

    def opcode(self, op: str, constants: dict[str, int]) -> int:
        """The opcode of that variant, which is added if there is none."""
        variants = self.header["variants"]
        for number, variant in enumerate(variants):
            if variant["op"] == op and variant["constants"] == constants:
                return number
        variants.append({"op": op, "constants": constants})
        self.ops.append(op)
        return len(variants) - 1

    def vary(self, ops: tuple[str, ...], name: str, value: int) -> bool:
        """Gives a random variant of these ops another constant."""
        variants = [v for v in self.header["variants"] if v["op"] in ops]
        if not variants:
            return False
        variant = self.rng.choice(variants)
        variant["constants"] = {**variant["constants"], name: value}
        return True
