"""What a GGUF file of an architecture holds, where that differs from one architecture to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from amk.model.gguf_settings import GgufSettings

COMMON_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
FUSED_QKV = "attn_qkv"
"""Rows of q, then k, then v in one tensor."""


@dataclass(frozen=True)
class Windows:
    """Sliding windows, where the architecture has any.

    All layers but every `period`-th slide (0: all do), unless the file has a pattern of its own. `unsaid` is the window
    of a model of so many layers whose file does not say (0: none).
    """

    period: int
    unsaid: Callable[[int], int] = lambda _: 0


def nothing(_: GgufSettings) -> dict[str, Any]:
    """No config field."""
    return {}


@dataclass(frozen=True)
class GgufArch:
    """`architecture` and `model_type` are Hugging Face's.

    `permuted`: rows of q and k are interleaved for llama.cpp's rotation of neighbours, which Hugging Face does not do.
    `norm_offset` has been added to the norm weights. `tensors` names a layer's tensors besides COMMON_TENSORS.

    Of the config: `renamed` is the field of a setting, `biases` the field that says whether a tensor has a bias,
    `fixed` what the file leaves out because llama.cpp knows it by the architecture, `derive` what it knows by other
    settings. `partial`: a part of the head may be rotated. `local_theta` is the rotary base of sliding layers, where
    they have their own and the file does not say, from that of the others. `with_window` is what a file with a sliding
    window is instead.

    `pinned` are settings that must have one of these values, `unused` ones that the model does not use.
    """

    architecture: str
    model_type: str
    permuted: bool = False
    norm_offset: float = 0.0
    tensors: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    biases: Mapping[str, str] = field(default_factory=lambda: {"attention_bias": "attn_q", "mlp_bias": "ffn_gate"})
    fixed: Mapping[str, Any] = field(default_factory=dict)
    derive: Callable[[GgufSettings], dict[str, Any]] = nothing
    partial: bool = False
    windows: Windows | None = None
    local_theta: Callable[[float], float] | None = None
    with_window: GgufArch | None = None
    pinned: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    unused: frozenset[str] = frozenset()
