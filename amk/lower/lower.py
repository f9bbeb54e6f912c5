"""The default schedule of a Llama-family model: units dealt round robin, attention split over its own SMs.

Order on every SM, layer by layer: qkv units, attention splits, merge of splits, o units, gate/up units, append of new
K/V rows, down units (piece by piece of K).
All mailboxes have one slot: before a packet is overwritten, every reader of the value before has contributed to
something the writer waited for, because every SM owns at least one gate/up unit of every layer (the validator proves
it per schedule).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from amk.errors import RejectedProgramError, UnsupportedModelError
from amk.lower.builder import Builder
from amk.lower.knobs import Knobs
from amk.lower.sizes import (
    Matrix,
    SharedMemory,
    choose_memory,
    down_parts,
    down_pieces,
    down_rows,
    matrix,
    pieces_of,
    unit_rows,
)
from amk.model.graph import Layer, Linear, ModelGraph, TensorRef
from schedule_ir.layout import KSTEP, KV_BLOCK, KV_ELEMENT_BYTES, TILE_ROWS, ceil_to, ksteps
from schedule_ir.op import Lane
from schedule_ir.ops.attention import PER_HEAD, PROJECTION
from schedule_ir.ops.linear import ACTIVATIONS
from schedule_ir.ops.token import BEST_WORDS
from schedule_ir.program import NEUTRAL_SCALARS, Buffer, PackedVector, Program, Section, Space, TensorTiles
from schedule_ir.target import Target

GATED_ROWS = TILE_ROWS // 2


def lower(
    graph: ModelGraph, target: Target, max_seq: int, kv_dtype: str = "fp16", knobs: Knobs | None = None
) -> Program:
    """The Program of `graph` on `target` for sequences up to `max_seq` tokens.

    Raises RejectedProgramError where the sizes do not fit the target, UnsupportedModelError for odd sizes.
    """
    return _Lowering(graph, target, max_seq, kv_dtype, knobs or Knobs()).run()


class _Variant(NamedTuple):
    """How a layer attends: constants of `attend`, and where its q/k norm weights are."""

    window: int
    rope: int
    qk_norm: int
    norm: int


class _Lowering:
    def __init__(self, graph: ModelGraph, target: Target, max_seq: int, kv_dtype: str, knobs: Knobs) -> None:
        _check_sizes(graph, max_seq, kv_dtype)
        self.graph, self.target, self.kv_dtype = graph, target, kv_dtype
        self.max_seq = max_seq
        self.knobs, self.memory = choose_memory(graph, target, knobs, kv_dtype)
        gated_units = -(-graph.intermediate // GATED_ROWS)
        self.sms = min(target.sms, gated_units)
        self.splits = max(1, min(knobs.max_splits, self.sms // graph.kv_heads))
        self.down_rows = down_rows(graph, self.sms, self.knobs)
        self.hidden_padded = ceil_to(graph.hidden, TILE_ROWS)
        self.build = Builder(self.sms)
        self.norms: list[str] = []
        self.biases: list[PackedVector] = []
        self.acquires: dict[int, int] = {}  # SM -> where in its stream lane
        self.attending: set[int] = set()
        self.appends: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        self._mailboxes()

    def _mailboxes(self) -> None:
        g, box = self.graph, self.build.mailbox
        self.qkv = box("qkv", ceil_to((g.heads + 2 * g.kv_heads) * g.head_dim, TILE_ROWS))
        self.partial = box("partial", self.splits * g.heads * (g.head_dim + 2))
        self.attention = box("attention", g.heads * g.head_dim)
        self.o = box("o", self.hidden_padded)
        self.mlp = box("mlp", ceil_to(g.intermediate, GATED_ROWS))
        self.ranges = down_parts(g.intermediate, self.knobs.down_split, self.knobs)
        self.downs = [box(name, len(self.ranges) * self.hidden_padded) for name in self._down_names()]
        self.best = box("best", BEST_WORDS * self.sms)
        self.kv = box("kv_released", self.sms)

    def _down_names(self) -> list[str]:
        """One mailbox; with a K-split, as many as let two layers in a row, also across tokens, use different ones.

        A K-part depends on the gate/up units of its range only, so on some SMs: the others may still read the layer
        before. Two layers on, every SM has contributed.
        """
        if len(self.ranges) == 1:
            return ["down"]
        return [f"down.{slot}" for slot in range(2 + len(self.graph.layers) % 2)]

    def _down(self, index: int) -> int:
        layers = len(self.graph.layers)
        if len(self.downs) == 1:
            return self.downs[0]
        return self.downs[2 if layers % 2 and index == layers - 1 else index % 2]

    def run(self) -> Program:
        for index, layer in enumerate(self.graph.layers):
            self._attention_phase(index, layer)
            self._mlp_phase(index, layer)
        self._finish_body()
        self._head()
        return Program(
            target=self.target,
            config=self._config(),
            scalars=_scalars(self.graph),
            kv_dtype=self.kv_dtype,
            buffers=tuple(self._buffers()),
            variants=tuple(self.build.variants),
            lanes={key: tuple(tasks) for key, tasks in self.build.lanes.items()},
            tiles=tuple(self.build.tiles),
            norms=tuple(self.norms),
            biases=tuple(self.biases),
            knobs=vars(self.knobs).copy(),
        )

    # Phases of a layer

    def _attention_phase(self, index: int, layer: Layer) -> None:
        if index:
            post = self.graph.layers[index - 1].post_mlp_norm
            self._add(self._down(index - 1), len(self.ranges), index - 1, layer.attn_norm, post)
        else:
            self._embed(layer.attn_norm)
        scaled = layer.attn_norm is not None
        self._linear(
            f"layers.{index}.qkv", (layer.q, layer.k, layer.v), index, self.qkv, scaled=scaled, rows=self.knobs.qkv_rows
        )
        self._attend(index, layer)
        self._combine(index)
        width = self.graph.heads * self.graph.head_dim
        gather = self.attention, width
        self._linear(f"layers.{index}.o", (layer.o,), index, self.o, gather=gather, rows=self.knobs.o_rows)

    def _mlp_phase(self, index: int, layer: Layer) -> None:
        self._add(self.o, 1, index, layer.mlp_norm, layer.post_attn_norm)
        scaled = layer.mlp_norm is not None
        self._linear(f"layers.{index}.gate_up", (layer.gate, layer.up), index, self.mlp, scaled=scaled, gated=True)
        for sm in tuple(self.appends):
            self._append(sm)
        for part, (begin, end) in enumerate(self.ranges):
            target = self._down(index) + part * self.hidden_padded
            pieces = down_pieces(begin, end, pieces_of(self.graph, self.sms, self.knobs), self.knobs)
            name = f"layers.{index}.down.{part}"
            if len(pieces) > 1:
                self._in_pieces(name, layer.down, index, target, pieces, biased=part == 0)
                continue
            self._linear(
                name, (layer.down,), index, target,
                gather=(self.mlp + begin, end - begin), columns=(begin, end), biased=part == 0,
                rows=self.down_rows,
            )  # fmt: skip

    def _embed(self, norm: TensorRef | None) -> None:
        row = self._norm_row(norm)
        for sm in range(self.sms):
            self.build.add(sm, "embed_norm", (ksteps(self.graph.hidden),), norm=row)

    def _add(self, source: int, parts: int, phase: int, norm: TensorRef | None, post: TensorRef | None) -> None:
        """residual += what is in the mailbox, normed first where the layer norms after; then the next norm."""
        constants = (ksteps(self.graph.hidden), parts, self.hidden_padded)
        fields = {"src": source, "phase": phase}
        if post is not None:
            fields["post"] = self._norm_row(post)
        fields["norm"] = self._norm_row(norm)
        for sm in range(self.sms):
            self.build.add(sm, "add_norm" if post is None else "add_post_norm", constants, **fields)

    def _norm_row(self, norm: TensorRef | None) -> int:
        """A row of the norms array; ones where there is no norm."""
        self.norms.append(norm.name if norm else "")
        return len(self.norms) - 1

    def _linear(
        self, name: str, linears: tuple[Linear, ...], phase: int, mailbox: int, *, scaled: bool = False,
        gated: bool = False, gather: tuple[int, int] | None = None, columns: tuple[int, int] | None = None,
        biased: bool = True, rows: int = TILE_ROWS,
    ) -> None:  # fmt: skip
        """Emit the units of one matrix, of `rows` rows if they can be, on all three lanes: copy, (gather,) multiply,
        publish.
        """
        tiles, shape = self._place(name, linears, columns, gated, rows)
        bias = self._bias(linears, gated) if biased else None
        per_unit = GATED_ROWS if gated else shape.rows
        gathered: set[int] = set()
        for unit, sm in enumerate(tiles.sms):
            if gather and sm not in gathered:
                gathered.add(sm)
                self.build.add(sm, "gather", (shape.ksteps, gather[1]), src=gather[0], phase=phase)
            if gated and unit + self.sms >= len(tiles.sms) and not self._has_down(sm):
                self._append(sm)  # the epilogue releases the row after a unit that follows
            self._multiply(sm, tiles, shape, unit)
            self._publish(sm, mailbox + unit * per_unit, phase, bias, unit, shape.rows, scaled=scaled, gated=gated)

    def _has_down(self, sm: int) -> bool:
        """Whether an SM gets a unit of down, which is dealt next."""
        units = len(self.ranges) * -(-self.graph.hidden // self.down_rows)
        return units >= self.sms or (sm - self.build.dealt(0)) % self.sms < units

    def _in_pieces(
        self, name: str, down: Linear, phase: int, mailbox: int, pieces: list[tuple[int, int]], *, biased: bool
    ) -> None:
        """Units of down that every SM multiplies piece by piece, sums parked in between, published after the last.

        The first pieces are there while the last rows of the MLP are still on their way, and x is a piece long.
        """
        rows = self.down_rows
        owners = self.build.deal(-(-self.graph.hidden // rows))
        bias = self._bias((down,), False) if biased else None
        for number, (begin, end) in enumerate(pieces):
            tiles, shape = self._place(f"{name}.{number}", (down,), (begin, end), False, rows, owners)
            for sm in sorted(set(owners)):
                self.build.add(sm, "gather", (shape.ksteps, end - begin), src=self.mlp + begin, phase=phase)
            for unit, sm in enumerate(owners):
                self._copy(sm, tiles, shape, unit)
                size = (shape.atoms, shape.chunk, shape.rows)
                if end < pieces[-1][1]:
                    self.build.add(sm, "gemv_park", (*size, int(number > 0)), accumulator=unit // self.sms)
                    continue
                self.build.add(sm, "gemv_resume", size, accumulator=unit // self.sms)
                self._publish(sm, mailbox + unit * rows, phase, bias, unit, rows)

    def _place(
        self, name: str, linears: tuple[Linear, ...], columns: tuple[int, int] | None, interleaved: bool,
        unit: int = TILE_ROWS, owners: list[int] | None = None,
    ) -> tuple[TensorTiles, Matrix]:  # fmt: skip
        rows = tuple(linear.weight.shape[0] for linear in linears)
        begin, end = columns or (0, linears[0].weight.shape[1])
        packed = len(rows) * ceil_to(rows[0], GATED_ROWS) if interleaved else sum(rows)
        shape = matrix(packed, end - begin, self.knobs, unit_rows(unit, [ksteps(end - begin)], self.knobs))
        names = tuple(linear.weight.name for linear in linears)
        owners = owners or self.build.deal(shape.units)
        return self.build.place(name, names, rows, (begin, end), shape, owners, interleaved), shape

    def _copy(self, sm: int, tiles: TensorTiles, shape: Matrix, unit: int) -> None:
        self.build.add(sm, "copy_tape", (shape.atoms, shape.chunk), offset=tiles.offsets[unit])

    def _multiply(self, sm: int, tiles: TensorTiles, shape: Matrix, unit: int) -> None:
        self._copy(sm, tiles, shape, unit)
        self.build.add(sm, "gemv", (shape.atoms, shape.chunk, shape.rows))

    def _publish(
        self, sm: int, target: int, phase: int, bias: int | None, unit: int, rows: int, *, scaled: bool = False,
        gated: bool = False,
    ) -> None:  # fmt: skip
        self.build.add(
            sm, "publish", (int(scaled), int(gated), int(bias is not None), rows),
            dst=target, phase=phase, bias=0 if bias is None else bias + unit * rows,
        )  # fmt: skip

    def _bias(self, linears: tuple[Linear, ...], interleaved: bool) -> int | None:
        if all(linear.bias is None for linear in linears):
            return None
        offset = self._bias_words()
        names = tuple(linear.bias.name if linear.bias else "" for linear in linears)
        rows = tuple(linear.weight.shape[0] for linear in linears)
        self.biases.append(PackedVector(names, interleaved, rows, offset))
        return offset

    def _bias_words(self) -> int:
        return sum(
            ceil_to(sum(v.rows), TILE_ROWS) if not v.interleaved else 2 * ceil_to(v.rows[0], 8) for v in self.biases
        )

    # Attention

    def _attend(self, index: int, layer: Layer) -> None:
        """One task per (query block, kv head, split), on SMs of their own from where the q/k/v units ended.

        These SMs have the fewest of them. The query blocks of a K/V head share an SM, as only the SM that has drained
        its copies may append to the cache.
        """
        g = self.graph
        variant = self._variant(layer)
        if index == 0:
            self.acquires = {sm: self.build.length(sm, Lane.STREAM) for sm in range(self.sms)}
        busy = Counter(self.build.dealt(i) for i in range(self.splits * g.kv_heads))
        for number in range(self.splits * g.kv_heads):
            split, head = divmod(number, g.kv_heads)
            sm = self.build.dealt(number)
            for first in range(0, g.group, self.knobs.max_queries):
                self._attend_task(sm, index, split, head, first, variant)
            self.appends[sm].append((index * g.kv_heads + head, split, variant.window))
            if busy[sm] > 1:  # the next task overwrites the new row
                self._append(sm)

    def _append(self, sm: int) -> None:
        """Store the new K/V rows that attention tasks of an SM left in its shared memory."""
        for kv_head, split, window in self.appends.pop(sm, []):
            self.build.add(sm, "append", (window,), kv_head=kv_head, split=split)

    def _variant(self, layer: Layer) -> _Variant:
        """A window that max_seq never leaves is none."""
        window = layer.window if layer.window < self.max_seq else 0
        rope = 0 if layer.rope is None else layer.rope + 1
        if layer.q_norm is None or layer.k_norm is None:
            return _Variant(window, rope, 0, 0)
        scope = PER_HEAD if layer.q_norm.shape == (self.graph.head_dim,) else PROJECTION
        offset = self._bias_words()
        sizes = layer.q_norm.shape[0], layer.k_norm.shape[0]
        self.biases.append(PackedVector((layer.q_norm.name, layer.k_norm.name), False, sizes, offset))
        return _Variant(window, rope, scope, offset)

    def _attend_task(self, sm: int, index: int, split: int, kv_head: int, first: int, variant: _Variant) -> None:
        g, d = self.graph, self.graph.head_dim
        row = index * g.kv_heads + kv_head
        head = kv_head * g.group + first
        self.attending.add(sm)
        self.build.add(sm, "copy_kv", (variant.window,), kv_head=row, split=split)
        queries = min(self.knobs.max_queries, g.group - first)
        constants = (queries, variant.window, variant.rope, variant.qk_norm)
        self.build.add(
            sm, "attend", constants, kv_head=row, phase=index, split=split,
            q_src=self.qkv + head * d, k_src=self.qkv + (g.heads + kv_head) * d,
            v_src=self.qkv + (g.heads + g.kv_heads + kv_head) * d,
            part_dst=self.partial + head * (d + 2), out_dst=self.attention + head * d,
            qkv=self.qkv, norm=variant.norm,
        )  # fmt: skip

    def _combine(self, index: int) -> None:
        if self.splits == 1:
            return
        g = self.graph
        for head in range(g.heads):
            sm = head * self.sms // g.heads if g.heads <= self.sms else head % self.sms
            self.build.add(
                sm, "combine", (), part_src=self.partial + head * (g.head_dim + 2),
                out_dst=self.attention + head * g.head_dim, phase=index,
            )  # fmt: skip

    # End of the token

    def _finish_body(self) -> None:
        layers = len(self.graph.layers)
        self._add(
            self._down(layers - 1),
            len(self.ranges),
            layers - 1,
            self.graph.final_norm,
            self.graph.layers[-1].post_mlp_norm,
        )
        for sm in range(self.sms):
            self.build.add(sm, "kv_release", (), dst=self.kv + sm, phase=layers)
            if sm in self.attending:
                self._acquire(sm)

    def _acquire(self, sm: int) -> None:
        """Wait for the rows of the token before where the first layer attends, whichever layer this SM attends in.

        An SM releases this token's rows after its last unit. In the last layer that may be before others have read its
        release of the token before; that they have read it in the first layer, every SM's last unit depends on.
        """
        self.build.insert(sm, self.acquires[sm], "kv_acquire", src=self.kv, phase=len(self.graph.layers))

    def _head(self) -> None:
        self.build.section = Section.HEAD
        layers = len(self.graph.layers)
        tiles, shape = self._place("head", (self.graph.head,), None, False)
        for unit, sm in enumerate(tiles.sms):
            self._multiply(sm, tiles, shape, unit)
            self.build.add(sm, "head", (), row=unit * TILE_ROWS)
        for sm in range(self.sms):
            self.build.add(sm, "publish_best", (), dst=self.best + BEST_WORDS * sm, phase=layers)
            self.build.add(sm, "sample", (), src=self.best, phase=layers)

    # Sizes

    def _config(self) -> dict[str, int]:
        g, knobs, memory = self.graph, self.knobs, self.memory
        return {
            "sms": self.sms,
            "layers": len(g.layers),
            "hidden": g.hidden,
            "hidden_padded": self.hidden_padded,
            "intermediate": g.intermediate,
            "heads": g.heads,
            "kv_heads": g.kv_heads,
            "head_dim": g.head_dim,
            "head_dim_padded": ceil_to(g.head_dim, KSTEP),
            "rotary_dim": g.rope.dim,
            "rope_tables": len(g.ropes),
            "activation": tuple(ACTIVATIONS).index(g.activation),
            "vocab": g.vocab,
            "tied_head": int(g.tied_head),
            "max_seq": self.max_seq,
            "max_seq_padded": ceil_to(self.max_seq, KV_BLOCK),
            "kv_element_bytes": KV_ELEMENT_BYTES[self.kv_dtype],
            "phases": len(g.layers) + 1,
            "partial_stride": g.head_dim + 2,
            "max_splits": self.splits,
            "min_split_rows": ceil_to(knobs.min_split_rows, KV_BLOCK),
            "queries": min(g.group, self.knobs.max_queries),
            "compute_warps": knobs.compute_warps,
            "slot_bytes": memory.slot,
            "ring_stages": memory.stages,
            "reduce_slots": knobs.reduce_slots,
            "in_flight": min(knobs.in_flight, memory.stages),
            "in_flight_low": min(knobs.in_flight_low, memory.stages),
            "stocked": min(knobs.stocked, memory.stages - 1),
            "prefetch_chunks": knobs.prefetch_chunks,
            "prefetch_clocks": _prefetch_clocks(self.target, memory.slot),
            "activation_ksteps": memory.activation // 64,
            "accumulators": memory.accumulators // (knobs.compute_warps * TILE_ROWS * 4),
            "shared_bytes": memory.total,
            "packets": self.build.mailboxes[-1].end,
        }

    def _buffers(self) -> list[Buffer]:
        g, config = self.graph, self._config()
        kv_row = 2 * config["head_dim_padded"] * config["kv_element_bytes"]
        rows = len(g.layers) * g.kv_heads * config["max_seq_padded"]
        buffers = [*self.build.mailboxes, Buffer("kv", Space.KV, 0, rows, kv_row)]
        buffers += [Buffer(f"tape.{sm}", Space.TAPE, 0, n, 512) for sm, n in enumerate(self.build.tape_atoms)]
        buffers += [
            Buffer("norms", Space.CONSTANT, 0, len(self.norms) * self.hidden_padded, 4),
            Buffer("biases", Space.CONSTANT, 0, self._bias_words(), 4),
            Buffer("rope", Space.CONSTANT, 0, len(g.ropes) * self.max_seq * (g.rope.dim // 2), 8),
        ]
        return buffers + _shared_buffers(self.memory)


def _scalars(graph: ModelGraph) -> dict[str, float]:
    """The model's real numbers, without those that compute nothing."""
    optional = {name: float(getattr(graph, name)) for name in NEUTRAL_SCALARS}
    used = {name: value for name, value in optional.items() if value != NEUTRAL_SCALARS[name]}
    return {"eps": graph.norm_eps, "attention_scale": graph.attention_scale, **used}


def _prefetch_clocks(target: Target, slot_bytes: int) -> int:
    """SM clocks (at 1.7 GHz, near what the targets run at) in which memory reads a chunk for every SM."""
    return round(slot_bytes * target.sms / target.bandwidth * 1.7e9)


def _shared_buffers(memory: SharedMemory) -> list[Buffer]:
    buffers, offset = [], 0
    for name, size in memory.regions():
        buffers.append(Buffer(f"shared.{name}", Space.SHARED, offset, size, 1))
        offset += size
    return buffers


def _check_sizes(graph: ModelGraph, max_seq: int, kv_dtype: str) -> None:
    if kv_dtype not in KV_ELEMENT_BYTES:
        raise RejectedProgramError(f"kv_dtype {kv_dtype!r} is not one of {', '.join(KV_ELEMENT_BYTES)}")
    if graph.head.bias is not None:
        raise UnsupportedModelError(f"{graph.head.bias.name}: a bias of the output head is not supported")
    if max_seq < 1:
        raise RejectedProgramError(f"max_seq {max_seq} must be at least 1")
    if graph.activation not in ACTIVATIONS:
        raise UnsupportedModelError(f"activation {graph.activation!r} is not one of {', '.join(ACTIVATIONS)}")
    if len({rope.dim for rope in graph.ropes}) > 1:
        raise UnsupportedModelError("the model's rotary embeddings rotate different parts of a head, which amk lacks")
    for name, value in (("hidden_size", graph.hidden), ("head_dim", graph.head_dim)):
        if value % 2:
            raise UnsupportedModelError(f"{name} {value} is odd; only even sizes are supported")
