"""The least time that a token can take: its bytes over the data sheet's bandwidth. Faster is an error, not a win."""

from __future__ import annotations

import math

from amk.model.graph import Linear, ModelGraph
from schedule_ir.layout import KV_ELEMENT_BYTES

BF16_BYTES = 2


def token_bytes(graph: ModelGraph, kv_dtype: str, pos: int) -> int:
    """Bytes of weights and cached K/V that the token at `pos` needs, counted from the model, not from a schedule."""
    layers = (
        x for layer in graph.layers for x in (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down)
    )
    weights = sum(_elements(linear) for linear in layers) + _elements(graph.head)
    kv_row = 2 * graph.head_dim * graph.kv_heads * KV_ELEMENT_BYTES[kv_dtype]
    rows = sum(min(pos, layer.window - 1) if layer.window else pos for layer in graph.layers)
    return BF16_BYTES * weights + rows * kv_row


def _elements(linear: Linear) -> int:
    return math.prod(linear.weight.shape)


def floor_ms(graph: ModelGraph, kv_dtype: str, pos: int, bandwidth: float, l2_bytes: int) -> float:
    """Least ms per token at `pos`: what the L2 may keep from the token before is not counted."""
    return max(0, token_bytes(graph, kv_dtype, pos) - l2_bytes) / bandwidth * 1e3
