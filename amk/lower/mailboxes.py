"""Where results lie that travel between SMs: one mailbox a kind, shared by all layers."""

from __future__ import annotations

from amk.lower.builder import Builder
from amk.lower.setting import GATED_ROWS, Setting
from schedule_ir.layout import TILE_ROWS, ceil_to
from schedule_ir.ops.token import BEST_WORDS


class Mailboxes:
    """The first packet of each mailbox.

    All have one slot: before a packet is overwritten, every reader of the value before has contributed to something the
    writer waited for, because every SM owns at least one gate/up unit of every layer (the validator proves it per
    schedule).
    """

    def __init__(self, setting: Setting, build: Builder) -> None:
        g, box = setting.graph, build.mailbox
        self._layers, self._parts = len(g.layers), len(setting.down_parts)
        self.qkv = box("qkv", ceil_to((g.heads + 2 * g.kv_heads) * g.head_dim, TILE_ROWS))
        self.partial = box("partial", setting.splits * g.heads * (g.head_dim + 2))
        self.attention = box("attention", g.heads * g.head_dim)
        self.o = box("o", setting.hidden_padded)
        self.mlp = box("mlp", ceil_to(g.intermediate, GATED_ROWS))
        self._downs = [box(name, self._parts * setting.hidden_padded) for name in self._down_names()]
        self.best = box("best", BEST_WORDS * setting.sms)
        self.kv = box("kv_released", setting.sms)

    def _down_names(self) -> list[str]:
        """One mailbox; with a K-split, as many as let two layers in a row, also across tokens, use different ones.

        A K-part depends on the gate/up units of its range only, so on some SMs: the others may still read the layer
        before. Two layers on, every SM has contributed.
        """
        if self._parts == 1:
            return ["down"]
        return [f"down.{slot}" for slot in range(2 + self._layers % 2)]

    def down(self, index: int) -> int:
        """That of a layer's down projection."""
        if len(self._downs) == 1:
            return self._downs[0]
        return self._downs[2 if self._layers % 2 and index == self._layers - 1 else index % 2]
