"""The execution plan as data: vectorised operations in dependency order, the residue of a Program's tasks.

A node's id is its index in the plan. Nodes that other nodes read as mailbox contents (`LinearNode`, `AttentionNode`)
have one flat output: the outputs of their members, in mailbox order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

Piece = tuple[int, int, int]
"""(node, start, stop): a slice of a node's flat output."""

Read = tuple[Piece, ...]
"""Where the values of a range of packets come from, in order."""


@dataclass(frozen=True)
class EmbedNode:
    """The embedding row of the token: float32 [hidden]."""


@dataclass(frozen=True)
class AddNode:
    """`residual` (a node) plus the parts, in order, or plus their sum normed by row `post`: float32 [hidden]."""

    residual: int
    parts: tuple[Read, ...]
    post: int | None = None


@dataclass(frozen=True)
class NormNode:
    """x = `residual` * row `norm` of the norms array, and the sum of squares: float32 [ksteps * 16], float32."""

    residual: int
    norm: int
    ksteps: int


@dataclass(frozen=True)
class GatherNode:
    """x = mailbox contents: float32 [ksteps * 16]."""

    read: Read
    ksteps: int


class Factor(NamedTuple):
    """A part of the K of a matrix and what it is multiplied with: of unit i, `atoms` at atom `offsets[i]` of its tape.

    `x` is the node of the vector.
    """

    x: int
    atoms: int
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class LinearNode:
    """Units, unit i in the tape of `sms[i]`, that multiply the same x: in one go, or part by part of K, added in order.

    Output float32 [units * unit_rows], or [units * 8] if gated. `biases[i]` is the offset of the unit's bias, () for
    none. `scaled`: by the norm of the last x. A head node's output is the logits: unit i makes those of tokens 16 i to
    16 i + 15.
    """

    factors: tuple[Factor, ...]
    scaled: bool
    gated: bool
    head: bool
    unit_rows: int
    sms: tuple[int, ...]
    biases: tuple[int, ...]


class Attention(NamedTuple):
    """The constants of `attend`, in its order."""

    queries: int
    window: int
    rope: int
    qk_norm: int


@dataclass(frozen=True)
class AttentionNode:
    """Attention of blocks of `how.queries` heads, each over all splits, merged: float32 [blocks, queries, head_dim].

    Block b reads its queries from `q` [blocks, queries, head_dim], its new rows from `k` and `v` [blocks, head_dim],
    and the past from cache rows `kv_heads[b]` (layer * kv_heads + head). With a q/k norm its weights are at
    `q_weights[b]` and `k_weights[b]` of the bias array; a norm over the projection sums over `q_all` and `k_all`.
    """

    how: Attention
    kv_heads: tuple[int, ...]
    q: Read
    k: Read
    v: Read
    q_weights: tuple[int, ...] = ()
    k_weights: tuple[int, ...] = ()
    q_all: Read = ()
    k_all: Read = ()


Node = EmbedNode | AddNode | NormNode | GatherNode | LinearNode | AttentionNode


@dataclass(frozen=True)
class Plan:
    """Nodes [0, body) run for every token, the rest where logits are needed; `logits` is the head node."""

    nodes: tuple[Node, ...]
    body: int
    logits: int
