"""The compute lane's attention: splits, the new K/V row, and the merge."""

from __future__ import annotations

from typing import Any

from tests.validator.machine.gemv import Gemv
from tests.validator.machine.state import Agent, Args, BadProgramError
from tests.validator.machine.stream import Stream


class Attention(Stream, Gemv):
    """Without rotation and q/k norm."""

    def attend(self, number: int, warp: int, step: int, a: Args) -> Agent:
        sm, tag, pos = self.sm[number], self.tag(step, a["phase"]), self.pos(step)
        _, count = self.split(pos)
        if a["split"] >= count:
            return
        last, d = a["split"] == count - 1, self.config["head_dim"]
        starts = [a["q_src"] + q * d for q in range(a["queries"])] + ([a["k_src"], a["v_src"]] if last else [])
        for start in starts:
            self.check_range(start, d, len(self.packets), "packets")
        yield lambda: all(self.packets[s + i][0] == tag for s in starts for i in range(warp, d, self.setup.warps))
        for s in starts:
            sm.scratch.update({(s, i): self.read(s + i) for i in range(warp, d, self.setup.warps)})
        for which, s in zip(("key", "value"), starts[a["queries"] :], strict=False):
            sm.new_row |= {(which, i): self.read(s + i) for i in range(warp, d, self.setup.warps)} | {"pos": pos}
        yield from self.meet(sm, warp)
        rows: list[Any] = []
        first = max(0, pos + 1 - a["window"]) if a["window"] else 0
        for wanted in self.kv_chunks(pos, a["split"], a["window"]):
            content = yield from self.drain(sm, warp)
            if content[0] != "kv" or len(content[2]) != len(wanted):
                raise BadProgramError("attend drains a slot of other bytes")
            base = a["kv_head"] * self.config["max_seq_padded"]
            rows += [v for v, row in zip(content[1], content[2], strict=True) if first <= row - base < pos]
        vectors = [hash(tuple(sm.scratch[s, i] for i in range(d))) for s in starts]
        rows += [self.new_row(number)] if last else []
        yield from self.meet(sm, warp)
        self.publish_attention(a, warp, count, [hash((q, pos)) for q in vectors[: a["queries"]]], tuple(rows), tag)
        yield from self.meet(sm, warp)

    def new_row(self, number: int) -> int:
        """The row that attends of the last split leave in shared memory; another's, or garbage, if they did not."""
        left, dims = self.sm[number].new_row, range(self.config["head_dim"])
        key, value = (hash(tuple(left.get((which, i)) for i in dims)) for which in ("key", "value"))
        return hash((key, value, left.get("pos")))

    def append(self, number: int, warp: int, step: int, a: Args) -> Agent:
        """The row appears when the first warp stores its part: the earliest moment for a race with a copy."""
        pos = self.pos(step)
        if a["split"] != self.split(pos)[1] - 1:
            return
        if warp == 0:
            row = a["kv_head"] * self.config["max_seq_padded"] + pos
            self.check_range(row, 1, self.program.buffer("kv").size, "kv")
            self.kv[row] = self.new_row(number)
        yield from self.meet(self.sm[number], warp)

    def publish_attention(
        self, a: Args, warp: int, count: int, queries: list[int], rows: tuple[Any, ...], tag: int
    ) -> None:
        d, stride = self.config["head_dim"], self.config["partial_stride"]
        for q, query in enumerate(queries):
            if count == 1:
                for i in range(warp, d, self.setup.warps):
                    self.publish_at(a["out_dst"] + q * d + i, hash(("attention", query, rows, i)), tag)
                continue
            base = a["part_dst"] + (a["split"] * self.config["heads"] + q) * stride
            for i in range(warp, stride, self.setup.warps):
                self.publish_at(base + i, (query, rows, i), tag)

    def combine(self, number: int, warp: int, step: int, a: Args) -> Agent:
        sm, tag = self.sm[number], self.tag(step, a["phase"])
        _, count = self.split(self.pos(step))
        if count < 2:
            return
        stride, d = self.config["partial_stride"], self.config["head_dim"]
        for split in range(warp, count, self.setup.warps):
            base = a["part_src"] + split * self.config["heads"] * stride
            yield self.poll(base, stride, tag)
            sm.scratch["part", split] = [self.read(base + i) for i in range(stride)]
        yield from self.meet(sm, warp)
        parts = [sm.scratch["part", split] for split in range(count)]
        rows = tuple(row for part in parts for row in part[0][1])
        whole = all(p == (parts[0][0][0], part[0][1], i) for part in parts for i, p in enumerate(part))
        query = parts[0][0][0] if whole else "torn"
        for i in range(warp, d, self.setup.warps):
            self.publish_at(a["out_dst"] + i, hash(("attention", query, rows, i)), tag)
        yield from self.meet(sm, warp)
