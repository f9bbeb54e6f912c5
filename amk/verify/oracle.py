"""Logits from the definition of the model, in NumPy: no schedule, no tapes, no tables, all positions at once.

fp64 throughout for short sequences, fp32 products for long ones. K/V are rounded to the cache's dtype, which is part
of what an artifact computes; nothing else is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.model.bf16 import from_bf16
from amk.model.checkpoint import Checkpoint
from amk.model.graph import Layer, Linear, ModelGraph, TensorRef
from amk.model.rope import rope_tables
from amk.runtime.cpu.kv import round_kv
from schedule_ir.expr import NUMPY, evaluate
from schedule_ir.ops.linear import ACTIVATIONS

Array = npt.NDArray[Any]

EXACT_TOKENS = 300
"""Up to this many tokens in fp64."""

_ROWS = 8192
_QUERIES = 512


class Oracle:
    """The model as arithmetic; `logits` needs no state."""

    def __init__(self, graph: ModelGraph, checkpoint: Checkpoint, kv_dtype: str) -> None:
        self.graph, self.checkpoint, self.kv_dtype = graph, checkpoint, kv_dtype

    def logits(self, ids: Sequence[int], positions: Sequence[int]) -> Array:
        """[len(positions), vocab]: the logits after the token at each of these positions of `ids`."""
        self._type = np.float64 if len(ids) <= EXACT_TOKENS else np.float32
        self._angles = rope_tables(self.graph.ropes, len(ids), len(ids)).astype(self._type)
        h = self._embed(ids)
        for layer in self.graph.layers:
            attended = self._attention(layer, self._norm(h, layer.attn_norm))
            h = h + self._norm(attended, layer.post_attn_norm) * self._type(self.graph.residual_multiplier)
            computed = self._mlp(layer, self._norm(h, layer.mlp_norm))
            h = h + self._norm(computed, layer.post_mlp_norm) * self._type(self.graph.residual_multiplier)
        logits = self._linear(self.graph.head, self._norm(h[list(positions)], self.graph.final_norm))
        return _capped(logits / self._type(self.graph.logits_divisor), self.graph.logits_cap)

    def _embed(self, ids: Sequence[int]) -> Array:
        rows: Array = from_bf16(self.checkpoint.bf16(self.graph.embed.name)[list(ids)]).astype(self._type)
        return np.asarray(rows * self._type(self.graph.embed_scale))

    def _norm(self, x: Array, ref: TensorRef | None) -> Array:
        """RMSNorm over the last axis; x itself where there is no norm."""
        if ref is None:
            return x
        mean_square = np.square(x, dtype=np.float64).mean(-1, keepdims=True)
        scale = 1 / np.sqrt(mean_square + self.graph.norm_eps)
        weight = self.checkpoint.fp32(ref.name)
        return np.asarray(x * scale * weight, self._type)

    def _linear(self, linear: Linear, x: Array) -> Array:
        weight = self.checkpoint.bf16(linear.weight.name)
        out = np.empty((len(x), len(weight)), self._type)
        for begin in range(0, len(weight), _ROWS):
            block = from_bf16(weight[begin : begin + _ROWS]).astype(self._type)
            out[:, begin : begin + _ROWS] = x @ block.T
        if linear.bias is not None:
            out += self.checkpoint.fp32(linear.bias.name)
        return out

    def _mlp(self, layer: Layer, x: Array) -> Array:
        with np.errstate(over="ignore"):
            gate = evaluate(ACTIVATIONS[self.graph.activation], {"gate": self._linear(layer.gate, x)}, NUMPY)
        return self._linear(layer.down, gate * self._linear(layer.up, x))

    def _heads(self, linear: Linear, x: Array) -> Array:
        """[heads, tokens, head_dim]."""
        return self._split(self._linear(linear, x))

    def _split(self, x: Array) -> Array:
        return x.reshape(len(x), -1, self.graph.head_dim).swapaxes(0, 1)

    def _normed_heads(self, linear: Linear, ref: TensorRef | None, x: Array) -> Array:
        """[heads, tokens, head_dim], normed over each head or over all of them, as the weight's size says."""
        if ref is None or ref.shape[0] == self.graph.head_dim:
            return self._norm(self._heads(linear, x), ref)
        return self._split(self._norm(self._linear(linear, x), ref))

    def _rotate(self, x: Array, rope: int | None) -> Array:
        if rope is None:
            return x
        cos, sin = self._angles[rope, ..., 0], self._angles[rope, ..., 1]
        half = cos.shape[1]
        a, b = x[..., :half], x[..., half : 2 * half]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], -1)

    def _attention(self, layer: Layer, x: Array) -> Array:
        q, k = (self._normed_heads(*pair, x) for pair in ((layer.q, layer.q_norm), (layer.k, layer.k_norm)))
        q, k = self._rotate(q, layer.rope), self._rounded(self._rotate(k, layer.rope))
        v = self._rounded(self._heads(layer.v, x))
        out = np.empty_like(q)
        for head in range(self.graph.heads):
            of = head // self.graph.group
            for begin in range(0, len(x), _QUERIES):
                rows = slice(begin, begin + _QUERIES)
                out[head, rows] = self._attend(q[head, rows], k[of], v[of], begin, layer.window)
        return self._linear(layer.o, out.swapaxes(0, 1).reshape(len(x), -1))

    def _rounded(self, rows: Array) -> Array:
        return round_kv(rows.astype(np.float32), self.kv_dtype).astype(self._type)

    def _attend(self, q: Array, k: Array, v: Array, first: int, window: int) -> Array:
        """Queries at positions first.. over the rows up to their own, the last `window` of them (0: all)."""
        end = first + len(q)
        scores = _capped((q @ k[:end].T) * self._type(self.graph.attention_scale), self.graph.score_cap)
        ago = np.arange(first, end)[:, None] - np.arange(end)[None, :]
        scores[(ago < 0) | ((ago >= window) & (window > 0))] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray((weights @ v[:end]) / weights.sum(-1, keepdims=True), self._type)


def _capped(x: Array, cap: float) -> Array:
    """Soft cap: cap * tanh(x / cap); 0 for none."""
    return np.asarray(np.tanh(x / x.dtype.type(cap)) * x.dtype.type(cap)) if cap else x


def relative_error(got: Array, expected: Array) -> float:
    """The largest relative error (2-norm) of any row; infinite where a value is not finite."""
    if not np.isfinite(got).all():
        return float("inf")
    difference = np.linalg.norm(got.astype(np.float64) - expected, axis=-1)
    return float((difference / np.linalg.norm(expected, axis=-1)).max())
