"""Attention tasks: splits of K/V heads, their merge, and when new rows are stored and waited for."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from amk.lower.builder import Builder
from amk.lower.mailboxes import Mailboxes
from amk.lower.setting import Setting
from amk.lower.vectors import Vectors
from amk.model.graph import Layer
from schedule_ir.op import Lane
from schedule_ir.ops.attention import PER_HEAD, PROJECTION


class _Variant(NamedTuple):
    """How a layer attends: constants of `attend`, and where its q/k norm weights are."""

    window: int
    rope: int
    qk_norm: int
    norm: int


class AttentionTasks:
    """Emits them layer by layer."""

    def __init__(self, setting: Setting, build: Builder, boxes: Mailboxes, vectors: Vectors) -> None:
        self._setting, self._build, self._boxes, self._vectors = setting, build, boxes, vectors
        self._acquires: dict[int, int] = {}  # SM -> where in its stream lane
        self._attending: set[int] = set()
        self._appends: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)

    def attend(self, index: int, layer: Layer) -> None:
        """One task per (query block, kv head, split), on SMs of their own, from those with the fewest q/k/v units on.

        The query blocks of a K/V head share an SM, as only the SM that has drained its copies may append to the cache.
        """
        g = self._setting.graph
        variant = self._variant(layer)
        if index == 0:
            self._acquires = {sm: self._build.length(sm, Lane.STREAM) for sm in range(self._setting.sms)}
        owners = self._build.deal_spare(self._setting.splits * g.kv_heads)
        busy = Counter(owners)
        for number, sm in enumerate(owners):
            split, head = divmod(number, g.kv_heads)
            for first in range(0, g.group, self._setting.knobs.max_queries):
                self._attend_task(sm, index, split, head, first, variant)
            self._appends[sm].append((index * g.kv_heads + head, split, variant.window))
            if busy[sm] > 1:  # the next task overwrites the new row
                self.append(sm)

    def append(self, sm: int) -> None:
        """Store the new K/V rows that attention tasks of an SM left in its shared memory."""
        for kv_head, split, window in self._appends.pop(sm, []):
            self._build.add(sm, "append", (window,), kv_head=kv_head, split=split)

    def _variant(self, layer: Layer) -> _Variant:
        """A window that max_seq never leaves is none."""
        window = layer.window if layer.window < self._setting.max_seq else 0
        rope = 0 if layer.rope is None else layer.rope + 1
        if layer.q_norm is None or layer.k_norm is None:
            return _Variant(window, rope, 0, 0)
        scope = PER_HEAD if layer.q_norm.shape == (self._setting.graph.head_dim,) else PROJECTION
        return _Variant(window, rope, scope, self._vectors.qk_norm(layer))

    def _attend_task(self, sm: int, index: int, split: int, kv_head: int, first: int, variant: _Variant) -> None:
        g, d = self._setting.graph, self._setting.graph.head_dim
        row = index * g.kv_heads + kv_head
        head = kv_head * g.group + first
        self._attending.add(sm)
        self._build.add(sm, "copy_kv", (variant.window,), kv_head=row, split=split)
        queries = min(self._setting.knobs.max_queries, g.group - first)
        constants = (queries, variant.window, variant.rope, variant.qk_norm)
        self._build.add(
            sm, "attend", constants, kv_head=row, phase=index, split=split,
            q_src=self._boxes.qkv + head * d, k_src=self._boxes.qkv + (g.heads + kv_head) * d,
            v_src=self._boxes.qkv + (g.heads + g.kv_heads + kv_head) * d,
            part_dst=self._boxes.partial + head * (d + 2), out_dst=self._boxes.attention + head * d,
            qkv=self._boxes.qkv, norm=variant.norm,
        )  # fmt: skip

    def combine(self, index: int) -> None:
        """Merge the splits of every head."""
        if self._setting.splits == 1:
            return
        g = self._setting.graph
        for head in range(g.heads):
            sm = head * self._setting.sms // g.heads if g.heads <= self._setting.sms else head % self._setting.sms
            self._build.add(
                sm, "combine", (), part_src=self._boxes.partial + head * (g.head_dim + 2),
                out_dst=self._boxes.attention + head * g.head_dim, phase=index,
            )  # fmt: skip

    def append_all(self) -> None:
        """Store all new rows that are left."""
        for sm in tuple(self._appends):
            self.append(sm)

    def release(self) -> None:
        """At the end of a token: say that its rows are stored; and wait for those of the token before."""
        for sm in range(self._setting.sms):
            self._build.add(sm, "kv_release", (), dst=self._boxes.kv + sm, phase=len(self._setting.graph.layers))
            if sm in self._attending:
                self._acquire(sm)

    def _acquire(self, sm: int) -> None:
        """Wait for the rows of the token before where the first layer attends, whichever layer this SM attends in.

        An SM releases this token's rows after its last unit. In the last layer that may be before others have read its
        release of the token before; that they have read it in the first layer, every SM's last unit depends on.
        """
        self._build.insert(
            sm, self._acquires[sm], "kv_acquire", src=self._boxes.kv, phase=len(self._setting.graph.layers)
        )
