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
from amk.model.rope import rope_table
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
        self._angles = rope_table(self.graph.rope, len(ids), len(ids)).astype(self._type)
        h = self._embed(ids)
        for layer in self.graph.layers:
            h = h + self._attention(layer, self._norm(h, layer.attn_norm))
            h = h + self._mlp(layer, self._norm(h, layer.mlp_norm))
        return self._linear(self.graph.head, self._norm(h[list(positions)], self.graph.final_norm))

    def _embed(self, ids: Sequence[int]) -> Array:
        return from_bf16(self.checkpoint.bf16(self.graph.embed.name)[list(ids)]).astype(self._type)

    def _norm(self, x: Array, ref: TensorRef) -> Array:
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
        return self._linear(linear, x).reshape(len(x), -1, self.graph.head_dim).swapaxes(0, 1)

    def _rotate(self, x: Array) -> Array:
        half = self._angles.shape[1]
        cos, sin = self._angles[..., 0], self._angles[..., 1]
        a, b = x[..., :half], x[..., half : 2 * half]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], -1)

    def _attention(self, layer: Layer, x: Array) -> Array:
        q = self._rotate(self._heads(layer.q, x))
        k, v = self._rounded(self._rotate(self._heads(layer.k, x))), self._rounded(self._heads(layer.v, x))
        out = np.empty_like(q)
        for head in range(self.graph.heads):
            of = head // self.graph.group
            for begin in range(0, len(x), _QUERIES):
                rows = slice(begin, begin + _QUERIES)
                out[head, rows] = self._attend(q[head, rows], k[of], v[of], begin)
        return self._linear(layer.o, out.swapaxes(0, 1).reshape(len(x), -1))

    def _rounded(self, rows: Array) -> Array:
        return round_kv(rows.astype(np.float32), self.kv_dtype).astype(self._type)

    def _attend(self, q: Array, k: Array, v: Array, first: int) -> Array:
        """Queries at positions first.. over the rows up to their own."""
        end = first + len(q)
        scores = (q @ k[:end].T) * self._type(self.graph.attention_scale)
        scores[np.arange(end)[None, :] > np.arange(first, end)[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray((weights @ v[:end]) / weights.sum(-1, keepdims=True), self._type)


def relative_error(got: Array, expected: Array) -> float:
    """The largest relative error (2-norm) of any row; infinite where a value is not finite."""
    if not np.isfinite(got).all():
        return float("inf")
    difference = np.linalg.norm(got.astype(np.float64) - expected, axis=-1)
    return float((difference / np.linalg.norm(expected, axis=-1)).max())
