"""Batch-1 decoding in plain torch, as a user would write it to go fast: fused projections, a preallocated K/V cache.

The step is three functions around attention, so that torch.compile sees each once and not once per layer. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama-family model in elements."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool

    @property
    def projections(self) -> tuple[int, int, int]:
        """Rows of q, k and v."""
        return self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim


@dataclass(frozen=True)
class LayerWeights:
    """bf16; q, k, v and gate, up are one matrix each."""

    attn_norm: Tensor
    qkv: Tensor
    o: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE of [heads, head_dim]."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[:, half:], x[:, :half]], -1) * sin


def norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm."""
    return functional.rms_norm(x, (x.shape[-1],), weight, EPS)


class Decoder:
    """Random weights of a shape, a cache of `rows` positions filled with random values, and the step."""

    def __init__(self, shape: Shape, rows: int, device: str = "cuda") -> None:
        self.shape, self._device = shape, device
        self.embed = self._random(shape.vocab, shape.hidden) * 0.02
        self.head = self.embed if shape.tied else self._random(shape.vocab, shape.hidden) * 0.02
        self.final_norm = self._ones(shape.hidden)
        self.layers = [self._layer() for _ in range(shape.layers)]
        self.cache = self._random(2, shape.layers, shape.kv_heads, rows, shape.head_dim)
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self._angles: dict[int, Tensor] = {}

    def _layer(self) -> LayerWeights:
        s, matrix, ones = self.shape, self._matrix, self._ones
        queries = s.heads * s.head_dim
        return LayerWeights(
            ones(s.hidden), matrix(sum(s.projections), s.hidden), matrix(s.hidden, queries),
            ones(s.hidden), matrix(2 * s.intermediate, s.hidden), matrix(s.hidden, s.intermediate),
        )  # fmt: skip

    def _random(self, *size: int) -> Tensor:
        return torch.randn(size, device=self._device, dtype=torch.bfloat16)

    def _matrix(self, rows: int, columns: int) -> Tensor:
        return self._random(rows, columns).mul_(0.6 * columns**-0.5)

    def _ones(self, size: int) -> Tensor:
        return torch.ones(size, device=self._device, dtype=torch.bfloat16)

    # The step in parts. `rows` are the K and V rows of the new position, [kv_heads, head_dim] each.

    def first(
        self,
        token: Tensor,
        embed: Tensor,
        weight: Tensor,
        qkv: Tensor,
        angle: Tensor,
        k: Tensor,
        v: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """(residual, rotated queries) of the first layer."""
        x = embed[token]
        return x, self._project(x, weight, qkv, angle, k, v)

    def middle(
        self, x: Tensor, attended: Tensor, o: Tensor, mlp_norm: Tensor, gate_up: Tensor, down: Tensor,
        weight: Tensor, qkv: Tensor, angle: Tensor, k: Tensor, v: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """(residual, rotated queries) of the next layer."""
        x = self._after_attention(x, attended, o, mlp_norm, gate_up, down)
        return x, self._project(x, weight, qkv, angle, k, v)

    def last(
        self, x: Tensor, attended: Tensor, o: Tensor, mlp_norm: Tensor, gate_up: Tensor, down: Tensor,
        weight: Tensor, head: Tensor,
    ) -> Tensor:  # fmt: skip
        """The next token."""
        x = self._after_attention(x, attended, o, mlp_norm, gate_up, down)
        return functional.linear(norm(x, weight), head).argmax(-1)

    def _project(
        self,
        x: Tensor,
        weight: Tensor,
        qkv: Tensor,
        angle: Tensor,
        k: Tensor,
        v: Tensor,
    ) -> Tensor:
        s = self.shape
        queries, keys, values = functional.linear(norm(x, weight), qkv)[0].split(s.projections)
        k.copy_(rotate(keys.view(s.kv_heads, s.head_dim), angle[0], angle[1]))
        v.copy_(values.view(s.kv_heads, s.head_dim))
        return rotate(queries.view(s.heads, s.head_dim), angle[0], angle[1])

    def _after_attention(
        self,
        x: Tensor,
        attended: Tensor,
        o: Tensor,
        mlp_norm: Tensor,
        gate_up: Tensor,
        down: Tensor,
    ) -> Tensor:
        x = x + functional.linear(attended.view(1, -1), o)
        gate, up = functional.linear(norm(x, mlp_norm), gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, down)

    def step(self, parts: Parts, pos: int, grouped: bool) -> Tensor:
        """The token after position `pos`; attention reads exactly the pos + 1 positions there are."""
        layers, cache, count = self.layers, self.cache, pos + 1
        angle = self._angle(pos)
        first = layers[0]
        x, q = parts.first(
            self.token, self.embed, first.attn_norm, first.qkv, angle, cache[0, 0, :, pos], cache[1, 0, :, pos]
        )
        for i, w in enumerate(layers[:-1]):
            a = self._attend(q, cache[0, i, :, :count], cache[1, i, :, :count], grouped)
            n = layers[i + 1]
            k, v = cache[0, i + 1, :, pos], cache[1, i + 1, :, pos]
            x, q = parts.middle(x, a, w.o, w.mlp_norm, w.gate_up, w.down, n.attn_norm, n.qkv, angle, k, v)
        a = self._attend(q, cache[0, -1, :, :count], cache[1, -1, :, :count], grouped)
        w = layers[-1]
        return parts.last(x, a, w.o, w.mlp_norm, w.gate_up, w.down, self.final_norm, self.head)

    def _angle(self, pos: int) -> Tensor:
        """cos and sin [2, head_dim]; made by the first step at a position, because a graph cannot capture it."""
        if pos not in self._angles:
            head_dim = self.shape.head_dim
            frequencies = 500000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
            angle = torch.cat([pos * frequencies] * 2)
            self._angles[pos] = torch.stack([angle.cos(), angle.sin()]).to(self._device, torch.bfloat16)
        return self._angles[pos]

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, grouped: bool) -> Tensor:
        """`grouped`: the queries of a group as rows of one head, which spares torch the repetition of K and V."""
        s = self.shape
        attention = functional.scaled_dot_product_attention
        if grouped:
            return attention(q.view(1, s.kv_heads, s.heads // s.kv_heads, s.head_dim), k[None], v[None])
        return attention(q.view(1, s.heads, 1, s.head_dim), k[None], v[None], enable_gqa=True)


@dataclass(frozen=True)
class Parts:
    """The three functions of the step, as they are or compiled."""

    first: Callable[..., Any]
    middle: Callable[..., Any]
    last: Callable[..., Any]
