"""What a checkpoint computes, as plain data: the walker's result and the lowering's input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RopeKind = Literal["default", "linear", "dynamic", "llama3"]


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding of one head (RoFormer, arXiv 2104.09864; half-split pairs as in Hugging Face).

    `dim` is the number of rotated dimensions of a head, `theta` the base, `original_max_position` the length that
    the scaling refers to. `factor` and the llama3 bounds are 1.0 / unused where `kind` does not need them.
    """

    kind: RopeKind
    dim: int
    theta: float
    original_max_position: int
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0


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
class Layer:
    """One decoder layer: h += o(attn(norm1(h))); h += down(act(gate(norm2(h))) * up(norm2(h)))."""

    attn_norm: TensorRef
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    mlp_norm: TensorRef
    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True)
class ModelGraph:
    """A decoder-only model, batch 1. All sizes in elements; `norm_eps` is added to the mean square."""

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

    @property
    def group(self) -> int:
        """Query heads per K/V head (GQA ratio)."""
        return self.heads // self.kv_heads

    def tensors(self) -> list[TensorRef]:
        """Every tensor of the checkpoint that the model reads, each once, in the order of use."""
        refs: list[TensorRef] = [self.embed]
        for layer in self.layers:
            linears = (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down)
            refs += [layer.attn_norm, layer.mlp_norm]
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
