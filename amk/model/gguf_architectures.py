"""The GGUF architectures that amk reads, and why it does not read others.

What a file holds is what llama.cpp's converter writes (its folder `conversion`, before that convert_hf_to_gguf.py);
what it means is what the loader and the graphs make of it (src/llama-model.cpp, src/models). Names of tensors are those
of its gguf package (constants.py, tensor_mapping.py).

Some settings of a model get lost on the way, and amk then computes what llama.cpp does: `llama` has no sliding window,
whichever Mistral it is made from, and a `chatglm` that is made from GlmForCausalLM instead of ChatGLMModel has epsilon
1e-5, rotary base 10000 and the hidden size as context length, whatever its config says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amk.errors import UnsupportedModelError
from amk.model.gguf_arch import GgufArch, Windows
from amk.model.gguf_refusals import gguf_refusal
from amk.model.gguf_settings import GgufSettings

_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_NORMS_AFTER = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
_FOUR_NORMS = _NORMS_AFTER | {"ffn_norm": "pre_feedforward_layernorm"}
_GATE_UP = {"ffn_up": "mlp.gate_up_proj"}
_CAPS = {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
_GELU = {"hidden_activation": "gelu_pytorch_tanh"}


def _gemma_scale(big: int) -> Callable[[GgufSettings], dict[str, Any]]:
    """Scores are scaled by the head's size, in the largest model (of `big` layers) by hidden / heads."""

    def derive(settings: GgufSettings) -> dict[str, Any]:
        hidden, heads = settings.integer("embedding_length", 0), settings.integer("attention.head_count", 1)
        by_hidden = settings.integer("block_count", 0) == big
        by_head = settings.integer("attention.key_length", 256)
        return {"query_pre_attn_scalar": hidden // max(heads, 1) if by_hidden else by_head}

    return derive


_OLMO3 = GgufArch(
    "Olmo3ForCausalLM",
    "olmo3",
    tensors=_HEAD_NORMS | _NORMS_AFTER,
    windows=Windows(period=4),
    local_theta=lambda theta: theta,
)

ARCHITECTURES: dict[str, GgufArch] = {
    "llama": GgufArch("LlamaForCausalLM", "llama", permuted=True),
    "mistral3": GgufArch("MistralForCausalLM", "mistral", permuted=True, fixed={"sliding_window": None}),
    "qwen2": GgufArch("Qwen2ForCausalLM", "qwen2", biases={}),
    "qwen3": GgufArch("Qwen3ForCausalLM", "qwen3", tensors=_HEAD_NORMS),
    "smollm3": GgufArch(
        "SmolLM3ForCausalLM", "smollm3", permuted=True, fixed={"no_rope_layer_interval": 4, "no_rope_layers": None}
    ),
    "phi3": GgufArch(
        "Phi3ForCausalLM",
        "phi3",
        tensors={"attn_qkv": "self_attn.qkv_proj"} | _GATE_UP,
        renamed={"rope.scaling.original_context_length": "original_max_position_embeddings"},
        fixed={"original_max_position_embeddings": None},
        partial=True,
        windows=Windows(period=0),
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
        pinned={"rope.scaling.finetuned": (True,)},  # llama.cpp does not rotate at all where it is false
        # The dense models of Granite 4 are converted as hybrids without state-space layers.
        unused=frozenset(
            (
                "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.inner_size", "ssm.time_step_rank",
                "expert_shared_feed_forward_length",
            )
        ),
    ),
    "olmo2": GgufArch("Olmo2ForCausalLM", "olmo2", tensors=_HEAD_NORMS | _NORMS_AFTER, with_window=_OLMO3),
    "gemma": GgufArch("GemmaForCausalLM", "gemma", norm_offset=1.0, fixed=_GELU),
    "gemma2": GgufArch(
        "Gemma2ForCausalLM",
        "gemma2",
        norm_offset=1.0,
        tensors=_FOUR_NORMS,
        renamed=_CAPS,
        fixed=_GELU,
        derive=_gemma_scale(big=46),
        windows=Windows(period=2, unsaid=lambda _: 4096),
    ),
    "gemma3": GgufArch(
        "Gemma3ForCausalLM",
        "gemma3_text",
        norm_offset=1.0,
        tensors=_FOUR_NORMS | _HEAD_NORMS,
        renamed={"final_logit_softcapping": "final_logit_softcapping"},
        fixed=_GELU,
        derive=_gemma_scale(big=62),
        windows=Windows(period=6),
        local_theta=lambda _: 10000.0,
    ),
    # GLM-4-9B (first release) and GLM-Edge. Rows of q and k are in pairs as in Hugging Face's checkpoint.
    "chatglm": GgufArch("GlmForCausalLM", "glm", tensors=_GATE_UP, partial=True),
    "glm4": GgufArch(
        "Glm4ForCausalLM",
        "glm4",
        tensors=_GATE_UP
        | {"post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm"},
        partial=True,
    ),
    "ernie4_5": GgufArch("Ernie4_5ForCausalLM", "ernie4_5", biases={"use_bias": "attn_q"}),
    "exaone4": GgufArch(
        "Exaone4ForCausalLM",
        "exaone4",
        tensors=_HEAD_NORMS | _NORMS_AFTER,
        # The first files of the 32B say nothing of its window.
        windows=Windows(period=4, unsaid=lambda layers: 4096 if layers == 64 else 0),
    ),
    "seed_oss": GgufArch(
        "SeedOssForCausalLM",
        "seed_oss",
        tensors={"post_attention_norm": "post_attention_layernorm"},
        biases={"attention_bias": "attn_q", "attention_out_bias": "attn_output", "mlp_bias": "ffn_gate"},
    ),
}  # fmt: skip
_READ = {arch.architecture for arch in (*ARCHITECTURES.values(), _OLMO3)}


def arch_of(settings: GgufSettings) -> GgufArch:
    """The architecture of a file. Raises UnsupportedModelError for one that amk does not read."""
    arch = ARCHITECTURES.get(settings.name)
    if arch is None:
        raise UnsupportedModelError(
            f"{settings.path}: GGUF architecture {settings.name!r} is not supported: "
            f"{gguf_refusal(settings.name, _READ)}; supported: {', '.join(ARCHITECTURES)}"
        )
    slides = arch.with_window is not None and settings.integer("attention.sliding_window", 0) > 0
    return arch.with_window if slides and arch.with_window else arch
