# ruff: noqa: ARG002 (every op has the same signature)
"""The epilogue lane: sums of the warps, scale, bias, gate, publication."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from schedule_ir import Program
from tests.validator.machine.base import Base
from tests.validator.machine.state import Agent, Args, BadProgramError, Sm, Steps
from tests.validator.machine.values import add, packed


class Epilogue(Base):
    """Takes what the compute lane hands over, in order."""

    @cached_property
    def atoms(self) -> dict[Any, list[Any]]:
        return _atoms(self.program)

    def take(self, sm: Sm) -> Steps:
        slot = sm.reduce_taken
        yield lambda: min(sm.reduce_given) > slot
        parts = sm.reduce.pop(slot)
        sm.reduce_taken += 1
        return parts

    def product(self, parts: list[Any], packed: int, scaled: int) -> Any:
        """One of the sums of a slot, 16 or 8: of its links, over all warps."""
        links = list(zip(*(part[1] for part in parts), strict=False))
        value = add(*(self.link(parts[0][0], link, packed) for link in links))
        if any(len(part[1]) != len(links) for part in parts):
            value = hash("warps of different chains")
        return add(hash((value, tuple(part[2] for part in parts)))) if scaled else value

    def link(self, number: int, link: tuple[Any, ...], packed: int) -> int:
        """A row of a tile (by its atoms, the same in all warps) times x (a slice of each warp)."""
        rows = self.atoms.get((number, link[0][0]))
        row = rows[packed] if rows and packed < len(rows) else ("garbage", link[0][0], packed)
        if any(atoms != link[0][0] for atoms, _ in link):
            row = ("mixed",)
        return hash((row, tuple(x for _, x in link)))

    def publish(self, number: int, warp: int, step: int, a: Args) -> Agent:
        parts = yield from self.take(self.sm[number])
        values = [self.product(parts, row, a["scaled"]) for row in range(a["unit_rows"])]
        if a["biased"]:
            values = [add(value, self.bias(a["bias"] + row)) for row, value in enumerate(values)]
        if a["gated"]:
            values = [hash(("gated", values[row], values[row + 8])) for row in range(8)]
        for row, value in enumerate(values):
            self.publish_at(a["dst"] + row, value, self.tag(step, a["phase"]))

    def bias(self, word: int) -> int:
        for vector in self.program.biases:
            rows = packed(vector.rows, vector.interleaved)
            if vector.offset <= word < vector.offset + -(-len(rows) // 16) * 16:
                place = rows[word - vector.offset] if word - vector.offset < len(rows) else None
                return hash((vector.tensors[place[0]], place[1])) if place and vector.tensors[place[0]] else 0
        raise BadProgramError(f"bias {word} is nobody's")

    def head(self, number: int, warp: int, step: int, a: Args) -> Agent:
        parts = yield from self.take(self.sm[number])
        if a["row"] >= self.config["vocab"]:
            raise BadProgramError("row beyond the vocabulary")
        for row in range(min(16, self.config["vocab"] - a["row"])):
            value = self.product(parts, row, 1)
            if a["row"] + row in self.logits.setdefault(step, {}):
                raise BadProgramError("logit written twice")
            self.logits[step][a["row"] + row] = value
            self.sm[number].best[a["row"] + row] = value

    def publish_best(self, number: int, warp: int, step: int, a: Args) -> Agent:
        yield None
        best = tuple(self.sm[number].best.items())
        self.sm[number].best = {}
        self.publish_at(a["dst"], best, self.tag(step, a["phase"]))
        self.publish_at(a["dst"] + 1, best, self.tag(step, a["phase"]))

    def kv_release(self, number: int, warp: int, step: int, a: Args) -> Agent:
        yield None
        self.publish_at(a["dst"], None, self.tag(step, a["phase"]))


def _atoms(program: Program) -> dict[Any, list[Any]]:
    """(SM, (chunks of atoms of a whole unit, its rows)) -> what they are, for all chunkings that a product may have."""
    chunkings = {v.constants["chunk_ksteps"] for v in program.variants if v.op.startswith("gemv")}
    found: dict[Any, list[Any]] = {}
    for tiles in program.tiles:
        padded = packed(tiles.rows, tiles.interleaved) + [None] * tiles.unit_rows
        for unit, (sm, offset) in enumerate(zip(tiles.sms, tiles.offsets, strict=True)):
            row = tiles.first_row + tiles.unit_rows * unit
            mine = padded[row : row + tiles.unit_rows]
            names = [(tiles.tensors[p[0]], p[1], tiles.columns) if p else ("zero", tiles.columns) for p in mine]
            for chunk in chunkings:
                pieces = [
                    tuple(range(offset + first, offset + min(first + chunk, tiles.atoms)))
                    for first in range(0, tiles.atoms, chunk)
                ]
                found[sm, (tuple(pieces), tiles.unit_rows)] = names
    return found
