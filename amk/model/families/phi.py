"""Phi-3, 3.5 and 4 (arXiv 2404.14219, 2412.08905): Llama with fused tensors, partial rotation and LongRoPE."""

from __future__ import annotations

from amk.model.config import Config
from amk.model.families.family import LLAMA_DEFAULTS, Family, Sizes, Traits, llama_like, windows_of
from amk.model.graph import Rope
from amk.model.rope_config import parse_rope


def _phi3(config: Config, sizes: Sizes) -> Traits:
    return llama_like(config, fused_qkv=True, fused_mlp=True, windows=windows_of(config, (True,) * sizes.layers))


def _ropes(config: Config, sizes: Sizes) -> tuple[Rope, None]:
    """Early checkpoints call LongRoPE "su" or "yarn"."""
    names = {"su": "longrope", "yarn": "longrope"}
    return parse_rope(config, sizes.head_dim, sizes.max_position, partial=True, old_names=names), None


PHI3 = Family(
    "Phi3ForCausalLM",
    "phi3",
    _phi3,
    LLAMA_DEFAULTS
    | {
        "max_position_embeddings": 4096, "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "eos_token_id": 32000,
    },
    reads=frozenset(("sliding_window",)),
    ropes=_ropes,
    own_code=frozenset(("configuration_phi3.Phi3Config", "modeling_phi3.Phi3ForCausalLM")),
)  # fmt: skip
