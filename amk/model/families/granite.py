"""Granite 3 (github.com/ibm-granite/granite-3.0-language-models): Llama with four multipliers (arXiv 2203.03466).

HyperCLOVA X (arXiv 2506.22403) adds norms after attention and MLP, and multiplies the logits where Granite divides.
"""

from __future__ import annotations

from amk.model.config import Config, read_bool, read_float
from amk.model.families.family import LLAMA_DEFAULTS, Family, Sizes, Traits, llama_like

_READS = frozenset(
    (
        "attention_bias", "mlp_bias", "attention_multiplier", "embedding_multiplier", "residual_multiplier",
        "logits_scaling",
    )
)  # fmt: skip


def _granite(config: Config, sizes: Sizes) -> Traits:
    scalars = _multipliers(config) | {"logits_divisor": read_float(config, "logits_scaling", 1.0)}
    return llama_like(config, attention_scale=read_float(config, "attention_multiplier", 1.0), scalars=scalars)


def _hyperclovax(config: Config, sizes: Sizes) -> Traits:
    after = read_bool(config, "use_post_norm", True)
    return llama_like(
        config,
        post_attn_norm="post_norm1" if after else None,
        post_mlp_norm="post_norm2" if after else None,
        attention_scale=read_float(config, "attention_multiplier", sizes.head_dim**-0.5),
        scalars=_multipliers(config) | {"logits_divisor": 1 / read_float(config, "logits_scaling", 1.0)},
    )


def _multipliers(config: Config) -> dict[str, float]:
    return {
        "embed_scale": read_float(config, "embedding_multiplier", 1.0),
        "residual_multiplier": read_float(config, "residual_multiplier", 1.0),
    }


GRANITE = Family("GraniteForCausalLM", "granite", _granite, LLAMA_DEFAULTS, reads=_READS)
HYPERCLOVAX = Family(
    "HyperCLOVAXForCausalLM",
    "hyperclovax",
    _hyperclovax,
    LLAMA_DEFAULTS,
    reads=_READS | {"use_post_norm"},
    own_code=frozenset(
        (
            "configuration_hyperclovax.HyperCLOVAXConfig", "modeling_hyperclovax.HyperCLOVAXModel",
            "modeling_hyperclovax.HyperCLOVAXForCausalLM",
        )
    ),
)  # fmt: skip
