"""Decoder layers from a family's traits: the tensors' names and shapes."""

from __future__ import annotations

from amk.model.families import Sizes, Traits
from amk.model.graph import FusedTensor, Layer, Linear, TensorRef


def make_layers(traits: Traits, sizes: Sizes) -> tuple[Layer, ...]:
    """All decoder layers; they differ in their names, and in window and rotation where the traits say so."""
    return tuple(_layer(traits, sizes, index) for index in range(sizes.layers))


def _layer(traits: Traits, sizes: Sizes, index: int) -> Layer:
    base = f"model.layers.{index}"
    attn, mlp = f"{base}.self_attn", f"{base}.mlp"
    hidden, inner = sizes.hidden, sizes.intermediate
    q_rows, kv_rows = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    return Layer(
        attn_norm=_norm(base, traits.attn_norm, hidden),
        q=_linear(f"{attn}.q_proj", q_rows, hidden, traits.qkv_bias),
        k=_linear(f"{attn}.k_proj", kv_rows, hidden, traits.qkv_bias),
        v=_linear(f"{attn}.v_proj", kv_rows, hidden, traits.qkv_bias),
        o=_linear(f"{attn}.o_proj", hidden, q_rows, traits.o_bias),
        mlp_norm=_norm(base, traits.mlp_norm, hidden),
        gate=_linear(f"{mlp}.gate_proj", inner, hidden, traits.mlp_bias),
        up=_linear(f"{mlp}.up_proj", inner, hidden, traits.mlp_bias),
        down=_linear(f"{mlp}.down_proj", hidden, inner, traits.mlp_bias),
        post_attn_norm=_norm(base, traits.post_attn_norm, hidden),
        post_mlp_norm=_norm(base, traits.post_mlp_norm, hidden),
        q_norm=_head_norm(traits, sizes, attn, "q_norm", q_rows),
        k_norm=_head_norm(traits, sizes, attn, "k_norm", kv_rows),
        window=traits.windows[index] if traits.windows else 0,
        rope=traits.ropes[index] if traits.ropes else 0,
    )


def _norm(base: str, name: str | None, size: int) -> TensorRef | None:
    return None if name is None else TensorRef(f"{base}.{name}.weight", (size,))


def _head_norm(traits: Traits, sizes: Sizes, base: str, name: str, width: int) -> TensorRef | None:
    if traits.qk_norm == "none":
        return None
    return TensorRef(f"{base}.{name}.weight", (sizes.head_dim if traits.qk_norm == "head" else width,))


def _linear(name: str, rows: int, cols: int, bias: bool) -> Linear:
    return Linear(TensorRef(f"{name}.weight", (rows, cols)), TensorRef(f"{name}.bias", (rows,)) if bias else None)


def fused_tensors(traits: Traits, layers: tuple[Layer, ...]) -> tuple[FusedTensor, ...]:
    """q, k, v stored as qkv_proj and gate, up as gate_up_proj, where the traits say so."""
    fused = []
    for layer in layers:
        if traits.fused_qkv:
            fused.append(_stack("qkv_proj", layer.q, layer.k, layer.v))
        if traits.fused_mlp:
            fused.append(_stack("gate_up_proj", layer.gate, layer.up))
    return tuple(fused)


def paired_tensors(traits: Traits, layers: tuple[Layer, ...]) -> tuple[TensorRef, ...]:
    """Weights and biases of q and k, where the traits say that their rows are stored in pairs."""
    if not traits.paired:
        return ()
    refs = (ref for layer in layers for linear in (layer.q, layer.k) for ref in (linear.weight, linear.bias))
    return tuple(ref for ref in refs if ref is not None)


def _stack(name: str, *linears: Linear) -> FusedTensor:
    parts = tuple(linear.weight for linear in linears)
    module = parts[0].name.rsplit(".", 2)[0]
    rows = sum(part.shape[0] for part in parts)
    return FusedTensor(TensorRef(f"{module}.{name}.weight", (rows, parts[0].shape[1])), parts)
