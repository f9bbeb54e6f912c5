"""Mistral (arXiv 2310.06825) and Ministral: Llama with a sliding window, in Ministral not in every layer."""

from __future__ import annotations

from amk.model.config import Config
from amk.model.families.family import LLAMA_DEFAULTS, Family, Sizes, Traits, llama_like, sliding_layers, windows_of

_DEFAULTS = LLAMA_DEFAULTS | {"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096}


def _mistral(config: Config, sizes: Sizes) -> Traits:
    return llama_like(config, windows=windows_of(config, (True,) * sizes.layers))


def _ministral(config: Config, sizes: Sizes) -> Traits:
    return llama_like(config, windows=windows_of(config, sliding_layers(config, sizes.layers, lambda _: True)))


MISTRAL = Family("MistralForCausalLM", "mistral", _mistral, _DEFAULTS, reads=frozenset(("sliding_window",)))
MINISTRAL = Family(
    "MinistralForCausalLM", "ministral", _ministral, _DEFAULTS, reads=frozenset(("sliding_window", "layer_types"))
)
