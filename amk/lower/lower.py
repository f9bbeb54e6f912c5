"""The default schedule of a Llama-family model: units dealt round robin, attention split over its own SMs.

Order on every SM, layer by layer: qkv units, attention splits, merge of splits, o units, gate/up units, append of new
K/V rows, down units (piece by piece of K).
"""

from __future__ import annotations

from collections.abc import Callable

from amk.lower.attention import AttentionTasks
from amk.lower.builder import Builder
from amk.lower.header import buffers_of, check_sizes, config_of, scalars_of
from amk.lower.knobs import Knobs
from amk.lower.linears import Linears
from amk.lower.mailboxes import Mailboxes
from amk.lower.setting import Setting
from amk.lower.vectors import Vectors
from amk.model.graph import Layer, ModelGraph, TensorRef
from schedule_ir.layout import ksteps
from schedule_ir.ops.token import BEST_WORDS
from schedule_ir.program import Program, Section
from schedule_ir.target import Target


def lower(
    graph: ModelGraph, target: Target, max_seq: int, kv_dtype: str = "fp16", knobs: Knobs | None = None
) -> Program:
    """The Program of `graph` on `target` for sequences up to `max_seq` tokens.

    Raises RejectedProgramError where the sizes do not fit the target, UnsupportedModelError for odd sizes.
    """
    check_sizes(graph, max_seq, kv_dtype)
    return _Lowering(Setting.of(graph, target, max_seq, kv_dtype, knobs or Knobs())).run()


class _Lowering:
    def __init__(self, setting: Setting) -> None:
        self.setting, self.graph = setting, setting.graph
        self.build, self.vectors = Builder(setting.sms), Vectors()
        self.boxes = Mailboxes(setting, self.build)
        self.linears = Linears(setting, self.build)
        self.attention = AttentionTasks(setting, self.build, self.boxes, self.vectors)

    def run(self) -> Program:
        for index, layer in enumerate(self.graph.layers):
            self._attention_phase(index, layer)
            self._mlp_phase(index, layer)
        self._finish_body()
        self._head()
        setting, build, vectors = self.setting, self.build, self.vectors
        return Program(
            target=setting.target,
            config=config_of(setting, build.mailboxes[-1].end),
            scalars=scalars_of(self.graph),
            kv_dtype=setting.kv_dtype,
            buffers=tuple(buffers_of(setting, build, len(vectors.norms), vectors.bias_words)),
            variants=tuple(build.variants),
            lanes={key: tuple(tasks) for key, tasks in build.lanes.items()},
            tiles=tuple(build.tiles),
            norms=tuple(vectors.norms),
            biases=tuple(vectors.biases),
            knobs=vars(setting.knobs).copy(),
        )

    # Phases of a layer

    def _attention_phase(self, index: int, layer: Layer) -> None:
        g, boxes, knobs = self.graph, self.boxes, self.setting.knobs
        if index:
            self._add_down(index - 1, layer.attn_norm)
        else:
            self._embed(layer.attn_norm)
        matrices = (layer.q, layer.k, layer.v)
        units = self.linears.place(f"layers.{index}.qkv", matrices, rows=knobs.qkv_rows)
        bias = self.vectors.bias(matrices, False)
        self.linears.emit(units, index, boxes.qkv, bias, scaled=layer.attn_norm is not None)
        self.attention.attend(index, layer)
        self.attention.combine(index)
        units = self.linears.place(f"layers.{index}.o", (layer.o,), rows=knobs.o_rows)
        gather = boxes.attention, g.heads * g.head_dim
        self.linears.emit(units, index, boxes.o, self.vectors.bias((layer.o,), False), gather=gather)

    def _mlp_phase(self, index: int, layer: Layer) -> None:
        self._add(self.boxes.o, 1, index, layer.mlp_norm, layer.post_attn_norm)
        matrices = (layer.gate, layer.up)
        units = self.linears.place(f"layers.{index}.gate_up", matrices, interleaved=True, bulk=True)
        per_part, parts = sum(band.units for band in self.setting.bands_of_down), self.setting.down_parts
        owners = self.build.deal(per_part * len(parts))
        self.linears.emit(
            units, index, self.boxes.mlp, self.vectors.bias(matrices, True),
            scaled=layer.mlp_norm is not None, gated=True,
            before_last=self._appending(set(owners)) if index == len(self.graph.layers) - 1 else None,
        )  # fmt: skip
        self.attention.append_all()
        bias = self.vectors.bias((layer.down,), False)
        for part in range(len(parts)):
            self._down_part(index, layer, part, bias if part == 0 else None, owners[part * per_part :][:per_part])

    def _appending(self, down_sms: set[int]) -> Callable[[int], None]:
        """Of the last layer: appends where no unit of down follows. A token's rows are released after a unit that is
        after their appends; in the layers before, those of the next layer are.
        """

        def append(sm: int) -> None:
            if sm not in down_sms:
                self.attention.append(sm)

        return append

    def _down_part(self, index: int, layer: Layer, part: int, bias: int | None, owners: list[int]) -> None:
        mailbox, mlp = self.boxes.down(index) + part * self.setting.hidden_padded, self.boxes.mlp
        (begin, end), name = self.setting.down_parts[part], f"layers.{index}.down.{part}"
        pieces = self.setting.down_pieces(begin, end)
        if len(pieces) > 1:
            self.linears.in_pieces(name, layer.down, index, mailbox, bias, pieces, mlp, owners)
            return
        units = self.linears.place_on(owners, name, (layer.down,), (begin, end), self.setting.bands_of_down)
        self.linears.emit(units, index, mailbox, bias, gather=(mlp + begin, end - begin))

    def _embed(self, norm: TensorRef | None) -> None:
        row = self.vectors.norm_row(norm)
        for sm in range(self.setting.sms):
            self.build.add(sm, "embed_norm", (ksteps(self.graph.hidden),), norm=row)

    def _add_down(self, index: int, norm: TensorRef | None) -> None:
        """Add what a layer's down projection made."""
        post = self.graph.layers[index].post_mlp_norm
        self._add(self.boxes.down(index), len(self.setting.down_parts), index, norm, post)

    def _add(self, source: int, parts: int, phase: int, norm: TensorRef | None, post: TensorRef | None) -> None:
        """residual += what is in the mailbox, normed first where the layer norms after; then the next norm."""
        constants = (ksteps(self.graph.hidden), parts, self.setting.hidden_padded)
        fields = {"src": source, "phase": phase}
        if post is not None:
            fields["post"] = self.vectors.norm_row(post)
        fields["norm"] = self.vectors.norm_row(norm)
        for sm in range(self.setting.sms):
            self.build.add(sm, "add_norm" if post is None else "add_post_norm", constants, **fields)

    # End of the token

    def _finish_body(self) -> None:
        self._add_down(len(self.graph.layers) - 1, self.graph.final_norm)
        self.attention.release()

    def _head(self) -> None:
        self.build.section = Section.HEAD
        layers = len(self.graph.layers)
        for unit in self.linears.place("head", (self.graph.head,), bulk=True):
            self.linears.multiply(unit)
            self.build.add(unit.sm, "head", (), row=unit.row)
        for sm in range(self.setting.sms):
            self.build.add(sm, "publish_best", (), dst=self.boxes.best + BEST_WORDS * sm, phase=layers)
            self.build.add(sm, "sample", (), src=self.boxes.best, phase=layers)
