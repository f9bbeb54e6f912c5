# ruff: noqa: ARG002 (every op has the same signature)
"""The compute lane's activations: embedding, residual, norm, gather; and the choice of the next token."""

from __future__ import annotations

from typing import Any

from tests.validator.machine.base import Base
from tests.validator.machine.state import Agent, Args, Sm
from tests.validator.machine.values import add


class Activation(Base):
    """Each warp has its slice of x and of the residual."""

    def normed(self, sm: Sm, warp: int, norm: int) -> None:
        name = self.program.norms[norm] if norm < len(self.program.norms) else None
        residual = sm.residual[warp]
        sm.x[warp] = hash(
            tuple(hash(("norm", name, i, residual.get(i))) for i in self.slice_of(self.config["hidden"], warp))
        )
        sm.squares[warp] = hash(tuple(sorted(residual.items())))

    def embed_norm(self, number: int, warp: int, step: int, a: Args) -> Agent:
        sm = self.sm[number]
        yield None
        sm.residual[warp] = {i: hash(("embed", sm.token[warp], i)) for i in self.slice_of(self.config["hidden"], warp)}
        self.normed(sm, warp, a["norm"])

    def add_norm(self, number: int, warp: int, step: int, a: Args) -> Agent:
        sm, tag = self.sm[number], self.tag(step, a["phase"])
        mine = self.slice_of(self.config["hidden"], warp)
        residual = sm.residual[warp]
        for part in range(a["parts"]):
            base = a["src"] + part * a["stride"]
            self.check_range(base, self.config["hidden"], len(self.packets), "packets")
            yield self.poll_some([base + i for i in mine], tag)
            for i in mine:
                residual[i] = add(residual.get(i), self.read(base + i))
        self.normed(sm, warp, a["norm"])

    def gather(self, number: int, warp: int, step: int, a: Args) -> Agent:
        mine, tag = self.slice_of(a["length"], warp), self.tag(step, a["phase"])
        self.check_range(a["src"], a["length"], len(self.packets), "packets")
        yield self.poll_some([a["src"] + i for i in mine], tag)
        self.sm[number].x[warp] = hash(tuple(self.read(a["src"] + i) for i in mine))

    def sample(self, number: int, warp: int, step: int, a: Args) -> Agent:
        sm, tag = self.sm[number], self.tag(step, a["phase"])
        yield self.poll(a["src"], 2 * self.program.sms, tag)
        rows: dict[int, Any] = {}
        for other in range(self.program.sms):
            rows |= dict(self.read(a["src"] + 2 * other) or ())
        sm.token[warp] = hash(tuple(rows.get(row) for row in range(self.config["vocab"])))
