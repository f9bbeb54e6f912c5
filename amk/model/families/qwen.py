"""Qwen2 and 2.5 (arXiv 2407.10671): q, k and v with a bias. Qwen3 (arXiv 2505.09388): each head of q and k normed."""

from __future__ import annotations

from amk.model.config import Config, read_bool, read_number
from amk.model.families.family import LLAMA_DEFAULTS, Family, Sizes, Traits, llama_like, sliding_layers, windows_of

_DEFAULTS = LLAMA_DEFAULTS | {
    "max_position_embeddings": 32768, "eos_token_id": None, "num_key_value_heads": 32, "sliding_window": 4096,
    "max_window_layers": 28,
}  # fmt: skip
_WINDOW_FIELDS = frozenset(("use_sliding_window", "sliding_window", "max_window_layers", "layer_types"))


def _windows(config: Config, sizes: Sizes) -> tuple[int, ...]:
    """Without layer_types, the layers from `max_window_layers` on slide."""
    if not read_bool(config, "use_sliding_window", False):
        return ()
    first = read_number(config, "max_window_layers", 28)
    return windows_of(config, sliding_layers(config, sizes.layers, lambda index: index >= first))


def _qwen2(config: Config, sizes: Sizes) -> Traits:
    return llama_like(config, qkv_bias=True, windows=_windows(config, sizes))


def _qwen3(config: Config, sizes: Sizes) -> Traits:
    return llama_like(config, qk_norm="head", windows=_windows(config, sizes))


QWEN2 = Family("Qwen2ForCausalLM", "qwen2", _qwen2, _DEFAULTS, reads=_WINDOW_FIELDS)
QWEN3 = Family(
    "Qwen3ForCausalLM", "qwen3", _qwen3, _DEFAULTS | {"head_dim": 128}, reads=_WINDOW_FIELDS | {"attention_bias"}
)
