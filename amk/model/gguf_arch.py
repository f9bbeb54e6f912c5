"""What a GGUF file of each architecture holds, by llama.cpp's converter (convert_hf_to_gguf.py) and its loader.

Some of what a model computes is not in the file, because llama.cpp knows it by the architecture: `fixed` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from amk.errors import UnsupportedModelError

Settings = Mapping[str, Any]

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
_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_FOUR_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def _nothing(_: Settings) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class GgufArch:
    """`architecture` and `model_type` are Hugging Face's. `permuted`: rows of q and k are interleaved for llama.cpp's
    rotation of neighbours. `norm_offset` has been added to the norm weights.

    `tensors` names a layer's tensors besides COMMON_TENSORS; `renamed` the config field of a setting (a key without
    the architecture); `derive` makes config fields of all settings.
    """

    architecture: str
    model_type: str
    permuted: bool = False
    norm_offset: float = 0.0
    tensors: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    derive: Callable[[Settings], dict[str, Any]] = _nothing
    partial: bool = False


_WINDOW = {"attention.sliding_window": "sliding_window"}
_GELU = {"hidden_activation": "gelu_pytorch_tanh"}


def _gemma_scale(big: int) -> Callable[[Settings], dict[str, Any]]:
    """Scores are scaled by the head's size, in the largest model (of `big` layers) by hidden / heads."""

    def derive(settings: Settings) -> dict[str, Any]:
        hidden, heads = settings.get("embedding_length", 0), settings.get("attention.head_count", 1)
        by_hidden = settings.get("block_count") == big
        return {"query_pre_attn_scalar": hidden // heads if by_hidden else settings.get("attention.key_length", 256)}

    return derive


ARCHITECTURES: dict[str, GgufArch] = {
    "llama": GgufArch("LlamaForCausalLM", "llama", permuted=True),
    "qwen2": GgufArch("Qwen2ForCausalLM", "qwen2"),
    "qwen3": GgufArch("Qwen3ForCausalLM", "qwen3", tensors=_HEAD_NORMS),
    "smollm3": GgufArch(
        "SmolLM3ForCausalLM", "smollm3", permuted=True, fixed={"no_rope_layer_interval": 4, "no_rope_layers": None}
    ),
    "phi3": GgufArch(
        "Phi3ForCausalLM",
        "phi3",
        tensors={"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
        renamed=_WINDOW | {"rope.scaling.original_context_length": "original_max_position_embeddings"},
        fixed={"sliding_window": None, "original_max_position_embeddings": None},
        partial=True,
    ),
    "granite": GgufArch(
        "GraniteForCausalLM",
        "granite",
        permuted=True,
        renamed={
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
    ),
    "olmo2": GgufArch("Olmo2ForCausalLM", "olmo2", tensors=_HEAD_NORMS | _FOUR_NORMS),
    "gemma": GgufArch("GemmaForCausalLM", "gemma", norm_offset=1.0, fixed=_GELU),
    "gemma2": GgufArch(
        "Gemma2ForCausalLM",
        "gemma2",
        norm_offset=1.0,
        tensors=_FOUR_NORMS,
        renamed=_WINDOW
        | {
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        fixed=_GELU,
        derive=_gemma_scale(big=46),
    ),
    "gemma3": GgufArch(
        "Gemma3ForCausalLM",
        "gemma3_text",
        norm_offset=1.0,
        tensors=_FOUR_NORMS | _HEAD_NORMS,
        renamed=_WINDOW | {"rope.freq_base_swa": "rope_local_base_freq"},
        fixed=_GELU | {"sliding_window_pattern": 6, "rope_local_base_freq": 10000.0},
        derive=_gemma_scale(big=62),
    ),
}


def arch_of(name: Any) -> GgufArch:
    """The architecture of a file. Raises UnsupportedModelError for one that amk does not read."""
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"GGUF architecture {name!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]
