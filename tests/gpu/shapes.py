"""Configs of well-known sizes, for models with random weights."""

from __future__ import annotations

from typing import Any


def config(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    """A LlamaForCausalLM config."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 65536,
        "tie_word_embeddings": True,
        "eos_token_id": vocab - 1,
        **more,
    }


CONFIGS = {
    "smollm2-135m": config(576, 1536, 30, 9, 3, 49152),
    "llama-1b": config(2048, 8192, 16, 32, 8, 128256, head_dim=64),
    "llama-3b": config(3072, 8192, 28, 24, 8, 128256, head_dim=128),
    "llama-8b": config(4096, 14336, 32, 32, 8, 128256, head_dim=128, tie_word_embeddings=False),
}
