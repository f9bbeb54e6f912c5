# ruff: noqa: ARG002 (every op has the same signature)
"""An independent judge of schedules: a small machine that executes device tables under interleavings of its choice.

Shares no code with the validator and does not use the registry's access rules: what an op does is written down here
again, after the kernel. Values are provenance (hashes of what they were computed from), so that the logits of a run can
be compared with a straightforward evaluation of the model graph. Two warps per compute lane drift apart except at block
barriers; bulk copies read memory at a moment of their own; polls succeed only while all their packets are there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from schedule_ir import Program, Tables, decode
from schedule_ir.op import Lane
from schedule_ir.program import Section

WARPS = 2
Condition = Callable[[], bool] | None
Agent = Iterator[Condition]


class BadProgramError(Exception):
    """The machine saw a deadlock, a wrong value or an access outside a buffer."""


@dataclass
class Setup:
    """Tokens of the run: the first position, and for each token whether its logits are needed."""

    start: int = 0
    heads: tuple[bool, ...] = (False, True, True)
    epoch: int = 1


@dataclass
class Sm:
    """State of one SM; packets and the K/V cache are the machine's."""

    ring: dict[int, Any] = field(default_factory=dict)
    issued: int = 0
    landed: int = 0
    ring_released: list[int] = field(default_factory=lambda: [0] * WARPS)
    ring_next: list[int] = field(default_factory=lambda: [0] * WARPS)
    pending: list[Any] = field(default_factory=list)
    reduce: dict[int, list[Any]] = field(default_factory=dict)
    reduce_given: list[int] = field(default_factory=lambda: [0] * WARPS)
    reduce_taken: int = 0
    x: list[Any] = field(default_factory=lambda: [None] * WARPS)
    residual: list[dict[int, Any]] = field(default_factory=lambda: [{} for _ in range(WARPS)])
    squares: list[Any] = field(default_factory=lambda: [None] * WARPS)
    barrier: list[int] = field(default_factory=lambda: [0] * WARPS)
    scratch: dict[Any, Any] = field(default_factory=dict)
    token: list[Any] = field(default_factory=lambda: [None] * WARPS)
    best: dict[int, Any] = field(default_factory=dict)


class Machine:
    """One run of a Program."""

    def __init__(self, program: Program, setup: Setup, prompt: list[Any]) -> None:
        self.program, self.setup, self.prompt = program, setup, prompt
        self.config = program.config
        self.sm = [Sm() for _ in range(program.sms)]
        never = (
            0 if setup.epoch == 1 else -1
        )  # zeros at first; later what older epochs left, which no tag of the run equals
        self.packets: list[tuple[int, Any]] = [(never, None)] * self.config["packets"]
        self.kv: dict[int, Any] = {}
        self.logits: dict[int, dict[int, Any]] = {}
        self.atoms = _atoms(program)

    # Scheduling

    def agents(self) -> list[Agent]:
        """Every warp of every SM, and its copy engine."""
        found: list[Agent] = []
        for sm in range(self.program.sms):
            found += [self.run_lane(sm, Lane.STREAM, 0), self.run_lane(sm, Lane.EPILOGUE, 0), self.engine(sm)]
            found += [self.run_lane(sm, Lane.COMPUTE, warp) for warp in range(WARPS)]
        return found

    def run_lane(self, sm: int, lane: Lane, warp: int) -> Agent:
        """One lane (or one warp of it), token after token."""
        for step, head in enumerate(self.setup.heads):
            if lane is Lane.COMPUTE and self.prompt[step] is not None:
                self.sm[sm].token[warp] = self.prompt[step]
            for section in (Section.BODY, Section.HEAD) if head else (Section.BODY,):
                for task in self.program.lanes.get((sm, lane, section), ()):
                    variant = self.program.variants[task.opcode]
                    args = dict(zip(variant.spec.fields, task.args, strict=True))
                    run = getattr(self, variant.op)
                    yield from run(sm, warp, step, {**args, **variant.constants})

    def tag(self, step: int, phase: int) -> int:
        return ((self.setup.epoch + step) * self.config["phases"] + phase) % 2**32

    def arrived(self, start: int, length: int, tag: int) -> bool:
        return all(packet[0] == tag for packet in self.packets[start : start + length])

    def read(self, index: int) -> Any:
        return self.packets[index][1]

    def check_range(self, start: int, length: int, end: int, what: str) -> None:
        if start < 0 or length < 0 or start + length > end:
            raise BadProgramError(f"{what} [{start}, {start + length}) outside {end}")

    def poll(self, start: int, length: int, tag: int) -> Condition:
        self.check_range(start, length, len(self.packets), "packets")
        return lambda: self.arrived(start, length, tag)

    def publish_at(self, index: int, value: Any, tag: int) -> None:
        self.check_range(index, 1, len(self.packets), "packets")
        self.packets[index] = (tag, value)

    def split(self, pos: int) -> tuple[int, int]:
        """(rows per split, number of splits)."""
        cap = self.config["max_splits"] * 16
        rows = max(self.config["min_split_rows"], -(-pos // cap) * 16)
        return rows, max(1, -(-pos // rows))

    def pos(self, step: int) -> int:
        return self.setup.start + step

    # Stream lane and copy engine

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

    def copy_tape(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        size = self.program.buffer(f"tape.{number}").size
        self.check_range(a["offset"], a["ksteps"], size, "tape")
        for first in range(0, a["ksteps"], a["chunk_ksteps"]):
            atoms = range(a["offset"] + first, a["offset"] + min(first + a["chunk_ksteps"], a["ksteps"]))
            if len(atoms) * 512 > self.config["slot_bytes"]:
                raise BadProgramError("chunk larger than a slot")
            yield from self.issue(self.sm[number], ("tape", number, atoms))

    def kv_chunks(self, pos: int, split: int) -> list[range]:
        rows, _ = self.split(pos)
        begin, end = min(pos, split * rows), min(pos, (split + 1) * rows)
        per = 16 * (
            self.config["slot_bytes"] // (32 * self.config["head_dim_padded"] * self.config["kv_element_bytes"])
        )
        return [range(first, min(first + per, -(-end // 16) * 16)) for first in range(begin, end, per)]

    def copy_kv(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        base = a["kv_head"] * self.config["max_seq_padded"]
        for rows in self.kv_chunks(self.pos(step), a["split"]):
            self.check_range(base + rows.start, len(rows), self.program.buffer("kv").size, "kv")
            yield from self.issue(self.sm[number], ("kv", [base + row for row in rows]))

    def kv_acquire(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        if step:
            yield self.poll(a["src"], self.program.sms, self.tag(step - 1, a["phase"]))

    # Compute lane

    def drain(self, sm: Sm, warp: int) -> Iterator[Any]:
        chunk = sm.ring_next[warp]
        yield lambda: sm.landed > chunk
        content = sm.ring[chunk % self.config["ring_stages"]]
        sm.ring_next[warp] += 1
        sm.ring_released[warp] += 1
        return content

    def meet(self, sm: Sm, warp: int) -> Agent:
        sm.barrier[warp] += 1
        mine = sm.barrier[warp]
        yield lambda: min(sm.barrier) >= mine

    def slice_of(self, length: int, warp: int) -> list[int]:
        return [i for i in range(length) if (i // 16) % WARPS == warp]

    def normed(self, sm: Sm, warp: int, norm: int) -> None:
        name = self.program.norms[norm] if norm < len(self.program.norms) else None
        residual = sm.residual[warp]
        sm.x[warp] = hash(
            tuple(hash(("norm", name, i, residual.get(i))) for i in self.slice_of(self.config["hidden"], warp))
        )
        sm.squares[warp] = hash(tuple(sorted(residual.items())))

    def embed_norm(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        sm = self.sm[number]
        yield None
        sm.residual[warp] = {i: hash(("embed", sm.token[warp], i)) for i in self.slice_of(self.config["hidden"], warp)}
        self.normed(sm, warp, a["norm"])

    def add_norm(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        sm, tag = self.sm[number], self.tag(step, a["phase"])
        mine = self.slice_of(self.config["hidden"], warp)
        residual = sm.residual[warp]
        for part in range(a["parts"]):
            base = a["src"] + part * a["stride"]
            self.check_range(base, self.config["hidden"], len(self.packets), "packets")
            yield lambda base=base: all(self.packets[base + i][0] == tag for i in mine)
            for i in mine:
                residual[i] = hash((residual.get(i), self.read(base + i)))
        self.normed(sm, warp, a["norm"])

    def gather(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        mine, tag = self.slice_of(a["length"], warp), self.tag(step, a["phase"])
        self.check_range(a["src"], a["length"], len(self.packets), "packets")
        yield lambda: all(self.packets[a["src"] + i][0] == tag for i in mine)
        self.sm[number].x[warp] = hash(tuple(self.read(a["src"] + i) for i in mine))

    def gemv(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        sm, atoms = self.sm[number], []
        for _ in range(0, a["ksteps"], a["chunk_ksteps"]):
            content = yield from self.drain(sm, warp)
            atoms.append(tuple(content[1]) if content[0] != "kv" else "K/V")
        slot = sm.reduce_given[warp]
        yield lambda: slot < sm.reduce_taken + self.config["reduce_slots"]
        part = (number, tuple(atoms), sm.x[warp], sm.squares[warp])
        sm.reduce.setdefault(slot, [None] * WARPS)[warp] = part
        sm.reduce_given[warp] += 1

    def attend(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        sm, tag, pos = self.sm[number], self.tag(step, a["phase"]), self.pos(step)
        _, count = self.split(pos)
        if a["split"] >= count:
            return
        last, d = a["split"] == count - 1, self.config["head_dim"]
        starts = [a["q_src"] + q * d for q in range(a["queries"])] + ([a["k_src"], a["v_src"]] if last else [])
        for start in starts:
            self.check_range(start, d, len(self.packets), "packets")
        yield lambda: all(self.packets[s + i][0] == tag for s in starts for i in range(warp, d, WARPS))
        for s in starts:
            sm.scratch.update({(s, i): self.read(s + i) for i in range(warp, d, WARPS)})
        yield from self.meet(sm, warp)
        rows: list[Any] = []
        for wanted in self.kv_chunks(pos, a["split"]):
            content = yield from self.drain(sm, warp)
            if content[0] != "kv" or len(content[2]) != len(wanted):
                raise BadProgramError("attend drains a slot of other bytes")
            base = a["kv_head"] * self.config["max_seq_padded"]
            rows += [v for v, row in zip(content[1], content[2], strict=True) if row - base < pos]
        vectors = [hash(tuple(sm.scratch[s, i] for i in range(d))) for s in starts]
        new = hash((vectors[-2], vectors[-1], pos)) if last else None
        rows += [new] if last else []
        yield from self.meet(sm, warp)
        self.publish_attention(a, warp, count, [hash((q, pos)) for q in vectors[: a["queries"]]], tuple(rows), tag)
        if last and a["append"] and warp == 0:
            row = a["kv_head"] * self.config["max_seq_padded"] + pos
            self.check_range(row, 1, self.program.buffer("kv").size, "kv")
            self.kv[row] = new
        yield from self.meet(sm, warp)

    def publish_attention(
        self, a: dict[str, int], warp: int, count: int, queries: list[int], rows: tuple[Any, ...], tag: int
    ) -> None:
        d, stride = self.config["head_dim"], self.config["partial_stride"]
        for q, query in enumerate(queries):
            if count == 1:
                for i in range(warp, d, WARPS):
                    self.publish_at(a["out_dst"] + q * d + i, hash(("attention", query, rows, i)), tag)
                continue
            base = a["part_dst"] + (a["split"] * self.config["heads"] + q) * stride
            for i in range(warp, stride, WARPS):
                self.publish_at(base + i, (query, rows, i), tag)

    def combine(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        sm, tag = self.sm[number], self.tag(step, a["phase"])
        _, count = self.split(self.pos(step))
        if count < 2:
            return
        stride, d = self.config["partial_stride"], self.config["head_dim"]
        for split in range(warp, count, WARPS):
            base = a["part_src"] + split * self.config["heads"] * stride
            yield self.poll(base, stride, tag)
            sm.scratch["part", split] = [self.read(base + i) for i in range(stride)]
        yield from self.meet(sm, warp)
        parts = [sm.scratch["part", split] for split in range(count)]
        rows = tuple(row for part in parts for row in part[0][1])
        whole = all(p == (parts[0][0][0], part[0][1], i) for part in parts for i, p in enumerate(part))
        query = parts[0][0][0] if whole else "torn"
        for i in range(warp, d, WARPS):
            self.publish_at(a["out_dst"] + i, hash(("attention", query, rows, i)), tag)
        yield from self.meet(sm, warp)

    def sample(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        sm, tag = self.sm[number], self.tag(step, a["phase"])
        yield self.poll(a["src"], 2 * self.program.sms, tag)
        rows: dict[int, Any] = {}
        for other in range(self.program.sms):
            rows |= dict(self.read(a["src"] + 2 * other) or ())
        sm.token[warp] = hash(tuple(rows.get(row) for row in range(self.config["vocab"])))

    # Epilogue lane

    def take(self, sm: Sm) -> Iterator[Any]:
        slot = sm.reduce_taken
        yield lambda: min(sm.reduce_given) > slot
        parts = sm.reduce.pop(slot)
        sm.reduce_taken += 1
        return parts

    def product(self, parts: list[Any], packed: int, scaled: int) -> Any:
        """Provenance of one of the 16 sums of a slot."""
        row = self.atoms.get((parts[0][0], parts[0][1]), ("garbage", parts[0][1]))
        if isinstance(row, list):
            row = row[packed]
        if any(part[1] != parts[0][1] for part in parts):
            row = ("mixed",)
        value = hash((row, tuple(part[2] for part in parts)))
        return hash((value, tuple(part[3] for part in parts))) if scaled else value

    def publish(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        parts = yield from self.take(self.sm[number])
        values = [self.product(parts, row, a["scaled"]) for row in range(16)]
        if a["biased"]:
            values = [hash((value, self.bias(a["bias"] + row))) for row, value in enumerate(values)]
        if a["gated"]:
            values = [hash(("gated", values[row], values[row + 8])) for row in range(8)]
        for row, value in enumerate(values):
            self.publish_at(a["dst"] + row, value, self.tag(step, a["phase"]))

    def bias(self, word: int) -> Any:
        for vector in self.program.biases:
            rows = packed(vector.rows, vector.interleaved)
            if vector.offset <= word < vector.offset + -(-len(rows) // 16) * 16:
                place = rows[word - vector.offset] if word - vector.offset < len(rows) else None
                return (vector.tensors[place[0]], place[1]) if place and vector.tensors[place[0]] else 0
        raise BadProgramError(f"bias {word} is nobody's")

    def head(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        parts = yield from self.take(self.sm[number])
        if a["row"] >= self.config["vocab"]:
            raise BadProgramError("row beyond the vocabulary")
        for row in range(min(16, self.config["vocab"] - a["row"])):
            value = self.product(parts, row, 1)
            if a["row"] + row in self.logits.setdefault(step, {}):
                raise BadProgramError("logit written twice")
            self.logits[step][a["row"] + row] = value
            self.sm[number].best[a["row"] + row] = value

    def publish_best(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        yield None
        best = tuple(self.sm[number].best.items())
        self.sm[number].best = {}
        self.publish_at(a["dst"], best, self.tag(step, a["phase"]))
        self.publish_at(a["dst"] + 1, best, self.tag(step, a["phase"]))

    def kv_release(self, number: int, warp: int, step: int, a: dict[str, int]) -> Agent:
        yield None
        self.publish_at(a["dst"], None, self.tag(step, a["phase"]))


@lru_cache(maxsize=64)
def packed(rows: tuple[int, ...], interleaved: bool) -> list[tuple[int, int] | None]:
    """(tensor, row) of every packed row."""
    if not interleaved:
        return [(tensor, row) for tensor, count in enumerate(rows) for row in range(count)]
    per = 16 // len(rows)
    blocks = -(-rows[0] // per)
    return [
        (tensor, block * per + i) if block * per + i < rows[tensor] else None
        for block in range(blocks)
        for tensor in range(len(rows))
        for i in range(per)
    ]


def _atoms(program: Program) -> dict[Any, list[Any]]:
    """(SM, chunks of atoms of a whole unit) -> what its 16 rows are, for every chunking that a gemv may have."""
    chunkings = {v.constants["chunk_ksteps"] for v in program.variants if v.op == "gemv"}
    found: dict[Any, list[Any]] = {}
    for tiles in program.tiles:
        rows = packed(tiles.rows, tiles.interleaved)
        for unit, (sm, offset) in enumerate(zip(tiles.sms, tiles.offsets, strict=True)):
            mine = [rows[16 * unit + i] if 16 * unit + i < len(rows) else None for i in range(16)]
            names = [(tiles.tensors[p[0]], p[1], tiles.columns) if p else ("zero", tiles.columns) for p in mine]
            for chunk in chunkings:
                pieces = [
                    tuple(range(offset + first, offset + min(first + chunk, tiles.ksteps)))
                    for first in range(0, tiles.ksteps, chunk)
                ]
                found[sm, tuple(pieces)] = names
    return found


def reference(
    graph: Any, program: Program, setup: Setup, prompt: list[Any]
) -> tuple[dict[int, list[Any]], dict[int, Any]]:
    """(logits of each token with a head, K/V rows at the end) of the model; of the tiles it uses down's K-split."""
    return _Reference(graph, program, setup, prompt).run()


class _Reference:
    def __init__(self, graph: Any, program: Program, setup: Setup, prompt: list[Any]) -> None:
        self.graph, self.setup, self.prompt = graph, setup, prompt
        self.padded = program.config["max_seq_padded"]
        self.kv: dict[int, Any] = history(graph, self.padded, setup.start)
        self.parts = sorted({t.columns for t in program.tiles if t.tensors == (graph.layers[0].down.weight.name,)})

    def run(self) -> tuple[dict[int, list[Any]], dict[int, Any]]:
        logits: dict[int, list[Any]] = {}
        token: Any = None
        for step, head in enumerate(self.setup.heads):
            token = self.prompt[step] if self.prompt[step] is not None else token
            residual = [hash(("embed", token, i)) for i in range(self.graph.hidden)]
            for number, layer in enumerate(self.graph.layers):
                residual = self.layer(number, layer, residual, self.setup.start + step)
            if head:
                x, scale = self.norm(self.graph.final_norm.name, residual)
                logits[step] = self.linear(self.graph.head, x, scale, None)
                token = hash(tuple(logits[step]))
        return logits, self.kv

    def slices(self, values: list[Any]) -> tuple[Any, ...]:
        return tuple(hash(tuple(v for i, v in enumerate(values) if (i // 16) % WARPS == w)) for w in range(WARPS))

    def norm(self, name: str, residual: list[Any]) -> tuple[Any, Any]:
        x = self.slices([hash(("norm", name, i, r)) for i, r in enumerate(residual)])
        parts = ([(i, r) for i, r in enumerate(residual) if (i // 16) % WARPS == w] for w in range(WARPS))
        return x, tuple(hash(tuple(sorted(part))) for part in parts)

    def linear(self, linear: Any, x: Any, scale: Any, biased: bool | None, columns: Any = None) -> list[Any]:
        """`biased`: None for no bias at all, else whether the packed matrix has one (then zeros count as added)."""
        columns = columns or (0, linear.weight.shape[1])
        values = [hash(((linear.weight.name, row, columns), x)) for row in range(linear.weight.shape[0])]
        values = [hash((v, scale)) if scale is not None else v for v in values]
        if biased:
            name = linear.bias.name if linear.bias is not None else None
            values = [hash((v, (name, row) if name else 0)) for row, v in enumerate(values)]
        return values

    def together(self, linears: tuple[Any, ...], x: Any, scale: Any) -> list[list[Any]]:
        biased = any(linear.bias is not None for linear in linears)
        return [self.linear(linear, x, scale, biased) for linear in linears]

    def layer(self, number: int, layer: Any, residual: list[Any], pos: int) -> list[Any]:
        q, k, v = self.together((layer.q, layer.k, layer.v), *self.norm(layer.attn_norm.name, residual))
        attention = self.attention(number, q, k, v, pos)
        [o] = self.together((layer.o,), self.slices(attention), None)
        residual = [hash((r, value)) for r, value in zip(residual, o, strict=True)]
        gate, up = self.together((layer.gate, layer.up), *self.norm(layer.mlp_norm.name, residual))
        mlp = [hash(("gated", a, b)) for a, b in zip(gate, up, strict=True)]
        for part, (begin, end) in enumerate(self.parts):
            biased = layer.down.bias is not None and part == 0
            down = self.linear(layer.down, self.slices(mlp[begin:end]), None, biased, (begin, end))
            residual = [hash((r, value)) for r, value in zip(residual, down, strict=True)]
        return residual

    def attention(self, number: int, q: list[Any], k: list[Any], v: list[Any], pos: int) -> list[Any]:
        g, d = self.graph, self.graph.head_dim
        result: list[Any] = []
        for head in range(g.heads):
            kv = head // (g.heads // g.kv_heads)
            base = (number * g.kv_heads + kv) * self.padded
            key, value = (hash(tuple(x[kv * d : (kv + 1) * d])) for x in (k, v))
            self.kv[base + pos] = hash((key, value, pos))
            rows = tuple(self.kv[base + row] for row in range(pos + 1))
            query = hash((hash(tuple(q[head * d : (head + 1) * d])), pos))
            result += [hash(("attention", query, rows, i)) for i in range(d)]
        return result


def history(graph: Any, padded: int, start: int) -> dict[int, Any]:
    """Rows that earlier launches left."""
    heads = range(len(graph.layers) * graph.kv_heads)
    return {head * padded + row: hash(("history", head, row)) for head in heads for row in range(start)}


Prefer = Callable[[list[int]], list[int]]
"""Puts agents in the order in which they are to be tried; the first that can step does."""


def run(machine: Machine, prefer: Prefer, limit: int = 1_000_000) -> None:
    """Steps agents until all lanes have ended. Raises BadProgramError for a deadlock."""
    agents = machine.agents()
    waiting: dict[int, Condition] = dict.fromkeys(range(len(agents)))
    for _ in range(limit):
        index = next((i for i in prefer(list(waiting)) if can_step(waiting[i])), None)
        if index is None:
            return finish(waiting)
        step(agents, waiting, index)
    raise BadProgramError("no end")


def can_step(condition: Condition) -> bool:
    return condition is None or condition()


def step(agents: list[Agent], waiting: dict[int, Condition], index: int) -> None:
    """Lets one agent do what it has waited for, up to its next wait."""
    try:
        waiting[index] = next(agents[index])
    except StopIteration:
        del waiting[index]


def finish(waiting: dict[int, Condition]) -> None:
    """Nobody can step: right if only copy engines are left."""
    if any(index % (3 + WARPS) != 2 for index in waiting):
        raise BadProgramError("deadlock")


def explore(make: Callable[[], Machine], limit: int = 200_000) -> str | None:
    """What goes wrong under some interleaving; all are tried, but states seen before are not followed again.

    Tape copies are taken at once: they touch their own SM's ring only, so their order against others does not matter.
    (Not for programs with K/V rows.)
    """
    seen: set[Any] = set()
    stack: list[tuple[int, ...]] = [()]
    while stack:
        path = stack.pop()
        machine = make()
        agents = machine.agents()
        waiting: dict[int, Condition] = dict.fromkeys(range(len(agents)))
        try:
            for index in path:
                step(agents, waiting, index)
            state = (tuple(sorted(path)), tuple(machine.packets), tuple(sorted(machine.kv.items())))
            if state in seen:
                continue
            seen.add(state)
            if len(seen) > limit:
                raise RuntimeError(f"more than {limit} states; make the program smaller")
            ready = [index for index, condition in waiting.items() if can_step(condition)]
            if not ready:
                finish(waiting)
            copies = [index for index in ready if index % (3 + WARPS) in (0, 2)]
            stack += [(*path, index) for index in copies[:1] or ready]
        except BadProgramError as error:
            return f"{error} after {path}"
    return None


def judge(tables: Tables, graph: Any, setup: Setup, prefer: Prefer) -> str | None:
    """What goes wrong in one run under this interleaving; None if nothing does."""
    try:
        program = decode(tables)
        prompt: list[Any] = [
            None if step and setup.heads[step - 1] else ("given", step) for step in range(len(setup.heads))
        ]
        machine = Machine(program, setup, prompt)
        machine.kv = history(graph, program.config["max_seq_padded"], setup.start)
        run(machine, prefer)
        logits, kv = reference(graph, program, setup, prompt)
    except BadProgramError as error:
        return str(error)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    for step, expected in logits.items():
        if [machine.logits.get(step, {}).get(row) for row in range(len(expected))] != expected:
            return f"wrong logits of token {step}"
    return None if machine.kv == kv else "wrong K/V rows"


def randomly(rng: random.Random) -> Prefer:
    """Uniform choice."""
    return lambda waiting: rng.sample(waiting, len(waiting))


def by_priority(rng: random.Random, changes: int = 6, horizon: int = 4000) -> Prefer:
    """Random priorities that change at a few random moments: starved lanes make rare orders (PCT, ASPLOS 2010)."""
    priority: dict[int, float] = {}
    moments = {rng.randrange(horizon) for _ in range(changes)}
    steps = [0]

    def prefer(waiting: list[int]) -> list[int]:
        for index in waiting:
            if index not in priority:
                priority[index] = rng.random()
        steps[0] += 1
        if steps[0] in moments:
            priority[rng.choice(waiting)] = rng.random()
        return sorted(waiting, key=priority.__getitem__)

    return prefer
