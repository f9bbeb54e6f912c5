"""What a checkpoint computes, as plain data: the walker's result and the lowering's input."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope"]


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding of one head (RoFormer, arXiv 2104.09864; half-split pairs as in Hugging Face).

    `dim` is the number of rotated dimensions of a head (the leading ones), `theta` the base, `original_max_position`
    the length that the scaling refers to; cos and sin are multiplied by `attention_factor`. The other fields are
    neutral where `kind` does not need them: `factor`, the llama3 bounds, yarn's correction range [`low`, `high`] in
    pairs of dimensions (YaRN, arXiv 2309.00071), and a divisor per pair for sequences up to and beyond
    `original_max_position` (LongRoPE, arXiv 2402.13753).
    """

    kind: RopeKind
    dim: int
    theta: float
    original_max_position: int
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float = 1.0
    low: float = 0.0
    high: float = 1.0
    short_divisors: tuple[float, ...] = ()
    long_divisors: tuple[float, ...] = ()

    @property
    def by_length(self) -> bool:
        """Whether all angles, those of earlier positions too, depend on how long the sequence is."""
        return self.kind in ("dynamic", "longrope")


@dataclass(frozen=True)
class TensorRef:
    """A tensor of the checkpoint by its Hugging Face name. `shape` is (rows, cols) or (length,)."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Linear:
    """y = W x (+ b). `weight` is [out, in]; `bias` is [out] or None."""

    weight: TensorRef
    bias: TensorRef | None = None


@dataclass(frozen=True)
class FusedTensor:
    """A tensor of the checkpoint that holds others of the graph, row after row."""

    ref: TensorRef
    parts: tuple[TensorRef, ...]


@dataclass(frozen=True)
class Layer:
    """One decoder layer: h += post(o(attn(norm1(h)))); h += post2(down(act(gate(norm2(h))) * up(norm2(h)))).

    A norm that is None is not there. `q_norm` and `k_norm` norm each head if they have head_dim elements, all heads
    together if they have as many as q and k. `window` is how many positions are seen, the new one among them (0: all);
    `rope` is which of the graph's `ropes` rotates q and k (None: no rotation).
    """

    attn_norm: TensorRef | None
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    mlp_norm: TensorRef | None
    gate: Linear
    up: Linear
    down: Linear
    post_attn_norm: TensorRef | None = None
    post_mlp_norm: TensorRef | None = None
    q_norm: TensorRef | None = None
    k_norm: TensorRef | None = None
    window: int = 0
    rope: int | None = 0

    def norms(self) -> tuple[TensorRef, ...]:
        """All norm weights that there are."""
        names = (
            self.attn_norm, self.mlp_norm, self.post_attn_norm, self.post_mlp_norm, self.q_norm, self.k_norm,
        )  # fmt: skip
        return tuple(norm for norm in names if norm is not None)


@dataclass(frozen=True)
class ModelGraph:
    """A decoder-only model, batch 1. All sizes in elements; `norm_eps` is added to the mean square.

    The embedding row is multiplied by `embed_scale`, what a layer adds to the residual by `residual_multiplier`. Logits
    are divided by `logits_divisor`; scores and logits are soft-capped, cap * tanh(x / cap), where a cap is not 0.
    `norm_offset` is what has to be added to stored norm weights; `fused` says which tensors are stored in one, `paired`
    of which the rotated rows of each head are stored pair by pair: rows 2i and 2i + 1 are i and i + rope.dim / 2 here.
    """

    architecture: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    norm_eps: float
    activation: str
    attention_scale: float
    max_position: int
    rope: Rope
    embed: TensorRef
    layers: tuple[Layer, ...]
    final_norm: TensorRef
    head: Linear
    tied_head: bool
    eos_token_ids: tuple[int, ...]
    local_rope: Rope | None = None
    embed_scale: float = 1.0
    residual_multiplier: float = 1.0
    logits_divisor: float = 1.0
    logits_cap: float = 0.0
    score_cap: float = 0.0
    norm_offset: float = 0.0
    fused: tuple[FusedTensor, ...] = ()
    paired: tuple[TensorRef, ...] = ()

    @property
    def digest(self) -> str:
        """sha256 (hex) of the computation: everything here but the stop tokens, which no artifact depends on."""
        return hashlib.sha256(repr(replace(self, eos_token_ids=())).encode()).hexdigest()

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """The rotary embeddings that layers choose from."""
        return (self.rope,) if self.local_rope is None else (self.rope, self.local_rope)

    @property
    def group(self) -> int:
        """Query heads per K/V head (GQA ratio)."""
        return self.heads // self.kv_heads

    def tensors(self) -> list[TensorRef]:
        """Every tensor of the checkpoint that the model reads, each once, in the order of use."""
        refs: list[TensorRef] = [self.embed]
        for layer in self.layers:
            linears = (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down)
            refs += layer.norms()
            for linear in linears:
                refs.append(linear.weight)
                if linear.bias is not None:
                    refs.append(linear.bias)
        refs.append(self.final_norm)
        if not self.tied_head:
            refs.append(self.head.weight)
        if self.head.bias is not None:
            refs.append(self.head.bias)
        return refs
