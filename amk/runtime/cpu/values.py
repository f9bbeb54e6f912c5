"""Value numbering: equal operations on equal inputs become one node, units that share an input one matrix.

Every SM computes the same norms on its own copy of the residual, and has a handful of the units of each matrix. Here
they collapse: `Values` hands out node ids while the tasks are walked, and `finish` makes the `Plan` of them. Nodes come
in the order in which they were first asked for, which is an order of dependency.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from amk.errors import RejectedProgramError
from amk.runtime.cpu.mailbox import INDEX_BITS, Codes, Copy
from amk.runtime.cpu.nodes import (
    AddNode,
    Attention,
    AttentionNode,
    EmbedNode,
    Factor,
    GatherNode,
    LinearNode,
    Node,
    NormNode,
    Plan,
    Read,
)

SIGNAL = 0
"""The writer of packets that only say that something is done; they hold no value to compute with."""


class Unit(NamedTuple):
    """A weight unit of a matrix: published at `dst` (its first row, in the head), its parts at `offsets` of a tape."""

    dst: int
    sm: int
    offsets: tuple[int, ...]
    bias: int


class Shape(NamedTuple):
    """What units must share to be one matrix. `factors`: (x, atoms) of each part of K, in order."""

    factors: tuple[tuple[int, int], ...]
    scaled: bool = False
    gated: bool = False
    biased: bool = False
    head: bool = False
    unit_rows: int = 16


def codes(copy: Copy) -> Codes:
    """The array of a copy."""
    return np.frombuffer(copy, np.int64)


@dataclass(eq=False)
class Block:
    """Query heads of one K/V head, published at `dst`: attended by one task per split.

    `weights` are the places of the q and k norm weights in the bias array.
    """

    dst: int
    kv_head: int
    q: Copy
    k: Copy
    v: Copy
    weights: tuple[int, int]
    writer: int
    partial_writers: dict[int, int] = field(default_factory=dict)


@dataclass
class _Matrix:
    shape: Shape
    units: list[Unit] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)

    def node(self) -> LinearNode:
        shape, sms = self.shape, tuple(unit.sm for unit in self.units)
        offsets = zip(*(unit.offsets for unit in self.units), strict=True)
        factors = tuple(Factor(x, count, at) for (x, count), at in zip(shape.factors, offsets, strict=True))
        biases = tuple(unit.bias for unit in self.units) if shape.biased else ()
        return LinearNode(factors, shape.scaled, shape.gated, shape.head, shape.unit_rows, sms, biases)


@dataclass
class _Attention:
    how: Attention
    everything: tuple[Copy, Copy]
    blocks: dict[tuple[int, int], Block] = field(default_factory=dict)


_Draft = Callable[["Values"], Node] | _Matrix | _Attention


class Values:
    """The nodes of a plan in the making, and the writers of packets."""

    def __init__(self, head_dim: int) -> None:
        self.body = 0
        self._head_dim = head_dim
        self._drafts: list[_Draft] = []
        self._known: dict[Hashable, int] = {}
        self._writer_nodes = [-1]
        self._writer_base = [0]
        self._nodes_of = self._base_of = np.zeros(0, np.int64)
        self.partials: dict[int, tuple[Block, int]] = {}
        self.ksteps: dict[int, int] = {}
        self.normed: set[int] = set()

    # Values of one SM's shared memory

    def embed(self) -> int:
        """The token's embedding row."""
        return self._intern(("embed",), lambda _: EmbedNode())

    def add(self, residual: int, parts: tuple[Copy, ...], post: int | None = None) -> int:
        """The residual after adding the parts, or their sum normed by row `post`."""
        return self._intern(
            ("add", residual, parts, post), lambda v: AddNode(residual, tuple(v.read(part) for part in parts), post)
        )

    def norm(self, residual: int, norm: int, ksteps: int) -> int:
        """x of a normed residual."""
        node = self._intern(("norm", residual, norm, ksteps), lambda _: NormNode(residual, norm, ksteps))
        self.ksteps[node] = ksteps
        self.normed.add(node)
        return node

    def gather(self, codes: Copy, ksteps: int) -> int:
        """x of packets."""
        node = self._intern(("gather", codes, ksteps), lambda v: GatherNode(v.read(codes), ksteps))
        self.ksteps[node] = ksteps
        return node

    # Values of packets, by writer

    def unit(self, shape: Shape, unit: Unit) -> int:
        """The writer of what a unit publishes."""
        node = self._intern(("linear", self.body, shape), _Matrix(shape))
        matrix = self._drafts[node]
        assert isinstance(matrix, _Matrix)
        matrix.units.append(unit)
        matrix.writers.append(self._writer(node))
        return matrix.writers[-1]

    def block(
        self, how: Attention, kv_head: int, dst: int, rows: tuple[Copy, Copy, Copy], everything: tuple[Copy, Copy],
        weights: tuple[int, int],
    ) -> Block:  # fmt: skip
        """The attention block of these q, k and v that publishes at `dst`: the same for all its splits.

        `everything` is all of q and of k where they are normed together, else empty.
        """
        sources = tuple(sorted({node for row in rows for node in self._nodes(row)}))
        node = self._intern(("attention", self.body, how, sources, everything), _Attention(how, everything))
        attention = self._drafts[node]
        assert isinstance(attention, _Attention)
        if (kv_head, dst) not in attention.blocks:
            attention.blocks[kv_head, dst] = Block(dst, kv_head, *rows, weights, writer=self._writer(node))
        block = attention.blocks[kv_head, dst]
        if (*rows, weights) != (block.q, block.k, block.v, block.weights):
            raise RejectedProgramError(f"the splits of K/V head {kv_head} attend with different q, k or v")
        return block

    def partial(self, block: Block, split: int) -> int:
        """The writer of a block's partial results of one split."""
        writer = self._writer(-1)
        block.partial_writers[split] = writer
        self.partials[writer] = block, split
        return writer

    def blocks(self) -> list[Block]:
        """All attention blocks."""
        return [b for draft in self._drafts if isinstance(draft, _Attention) for b in draft.blocks.values()]

    def _writer(self, node: int) -> int:
        self._writer_nodes.append(node)
        self._writer_base.append(0)
        return len(self._writer_nodes) - 1

    def _intern(self, key: Hashable, draft: _Draft) -> int:
        if key not in self._known:
            self._known[key] = len(self._drafts)
            self._drafts.append(draft)
        return self._known[key]

    def _nodes(self, copy: Copy) -> set[int]:
        return {self._writer_nodes[writer] for writer in np.unique(codes(copy) >> INDEX_BITS)}

    # The plan

    def begin_head(self) -> None:
        """What is asked for from now on belongs to HEAD."""
        self.body = len(self._drafts)

    def finish(self, vocab: int) -> Plan:
        """The plan. Raises RejectedProgramError if the head does not make every logit once."""
        for draft in self._drafts:
            self._place(draft)
        self._nodes_of, self._base_of = np.array(self._writer_nodes), np.array(self._writer_base)
        nodes = tuple(self._node(draft) for draft in self._drafts)
        heads = [i for i, node in enumerate(nodes) if isinstance(node, LinearNode) and node.head]
        if len(heads) != 1 or heads[0] < self.body:
            raise RejectedProgramError(f"{len(heads)} products make logits in HEAD; there has to be one")
        matrix = self._drafts[heads[0]]
        assert isinstance(matrix, _Matrix)
        rows = [unit.dst for unit in matrix.units]
        if rows != list(range(0, vocab, 16)):
            raise RejectedProgramError(f"the head's units do not make each of the {vocab} logits once")
        return Plan(nodes, self.body, heads[0])

    def _place(self, draft: _Draft) -> None:
        """Put the members of a group in mailbox order, so that what reads them finds one contiguous slice."""
        if isinstance(draft, _Matrix):
            order = sorted(range(len(draft.units)), key=lambda i: draft.units[i].dst)
            draft.units = [draft.units[i] for i in order]
            width = draft.shape.unit_rows // 2 if draft.shape.gated else draft.shape.unit_rows
            for rank, i in enumerate(order):
                self._writer_base[draft.writers[i]] = rank * width
        elif isinstance(draft, _Attention):
            draft.blocks = dict(sorted(draft.blocks.items(), key=lambda item: item[1].dst))
            for rank, block in enumerate(draft.blocks.values()):
                self._writer_base[block.writer] = rank * draft.how.queries * self._head_dim

    def _node(self, draft: _Draft) -> Node:
        if isinstance(draft, _Matrix):
            return draft.node()
        if isinstance(draft, _Attention):
            blocks = list(draft.blocks.values())
            q, k, v = (self.read(b"".join(copies)) for copies in zip(*((b.q, b.k, b.v) for b in blocks), strict=True))
            q_weights, k_weights = zip(*(block.weights for block in blocks), strict=True)
            q_all, k_all = (self.read(copy) if copy else () for copy in draft.everything)
            heads = tuple(block.kv_head for block in blocks)
            return AttentionNode(draft.how, heads, q, k, v, q_weights, k_weights, q_all, k_all)
        return draft(self)

    def read(self, copy: Copy) -> Read:
        """The slices of node outputs that the codes stand for. Raises RejectedProgramError for a signal."""
        writers, index = codes(copy) >> INDEX_BITS, codes(copy) & ((1 << INDEX_BITS) - 1)
        nodes, flat = self._nodes_of[writers], self._base_of[writers] + index
        if (nodes < 0).any():
            raise RejectedProgramError("a task reads partial results or signals as an activation")
        cuts = np.flatnonzero((np.diff(nodes) != 0) | (np.diff(flat) != 1)) + 1
        begins, ends = np.append(0, cuts), np.append(cuts, len(nodes))
        return tuple((int(nodes[a]), int(flat[a]), int(flat[b - 1]) + 1) for a, b in zip(begins, ends, strict=True))
