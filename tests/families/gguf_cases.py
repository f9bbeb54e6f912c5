"""GGUF files of the families: what llama.cpp's converter writes for a small model. The README's table names them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.families.cases import CASES, WINDOW, YARN, Case

SLIDING = [True, True, True, False]
YARN_SETTINGS = {
    "rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 64,
}  # fmt: skip
WIDE_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 32.0,
    "original_max_position_embeddings": 256,
}  # fmt: skip
"""Interpolates three of eight pairs, so that its numbers can be told from the divisors."""


@dataclass(frozen=True)
class GgufCase:
    """A case's model, with `changes` to its config, as a file of an architecture.

    `settings` are what the converter writes besides the sizes, with __ for the dot; `sized`: the head's size, too.
    """

    case: str
    arch: str
    changes: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    sized: bool = True

    def model(self) -> Case:
        """The case of the model."""
        case = CASES[self.case]
        return replace(case, changes=case.changes | self.changes)


_GEMMA2 = {
    "attention__sliding_window": WINDOW, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
}  # fmt: skip
_LINEAR = {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}
_GRANITE = {"attention__scale": 0.15, "embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 8.0}
_GEMMA3 = {"layer_types": None, "num_hidden_layers": 7, "query_pre_attn_scalar": 16}
_EXAONE4 = {"attention__sliding_window": WINDOW, "attention__sliding_window_pattern": SLIDING}
GGUF_CASES: dict[str, GgufCase] = {
    "llama": GgufCase("llama", "llama", settings={"rope__dimension_count": 16, "vocab_size": 503}),
    "llama-bias": GgufCase("llama-bias", "llama"),
    "llama-llama3": GgufCase("llama-llama3", "llama", {"rope_parameters": WIDE_LLAMA3}),
    "mistral": GgufCase("mistral-full", "llama", settings={"rope__dimension_count": 16}),
    "mistral3": GgufCase("mistral-full", "mistral3"),
    "mistral3-yarn": GgufCase("mistral-full", "mistral3", {"rope_parameters": YARN}, YARN_SETTINGS),
    "qwen2": GgufCase("qwen2", "qwen2", sized=False),
    "qwen2-yarn": GgufCase("qwen2-yarn", "qwen2", settings=YARN_SETTINGS),
    "qwen2-yarn-by-hand": GgufCase(
        "qwen2-yarn", "qwen2",
        {"rope_parameters": YARN | {"attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0}},
        YARN_SETTINGS
        | {
            "rope__scaling__yarn_attn_factor": 1.3, "rope__scaling__yarn_beta_fast": 16.0,
            "rope__scaling__yarn_beta_slow": 2.0, "rope__scaling__yarn_ext_factor": 1.0,
        },
    ),
    "qwen3": GgufCase("qwen3", "qwen3"),
    "phi3": GgufCase("phi3", "phi3", settings={"attention__sliding_window": WINDOW}, sized=False),
    "phi4": GgufCase("phi3", "phi3", {"sliding_window": None}, {"attention__sliding_window": 0}, sized=False),
    "smollm3": GgufCase("smollm3", "smollm3"),
    "granite": GgufCase("granite", "granite", settings=_GRANITE, sized=False),
    "olmo2": GgufCase("olmo2", "olmo2", sized=False),
    "olmo3": GgufCase("olmo3", "olmo2", settings=_EXAONE4 | YARN_SETTINGS, sized=False),
    "olmo3-local-theta": GgufCase(
        "olmo3", "olmo2",
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "default", "rope_theta": 20000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            },
        },
        {"attention__sliding_window": WINDOW, "rope__freq_base_swa": 500.0}, sized=False,
    ),
    "gemma": GgufCase("gemma", "gemma", {"tie_word_embeddings": True}),
    "gemma2": GgufCase("gemma2", "gemma2", {"tie_word_embeddings": True, "query_pre_attn_scalar": 16}, _GEMMA2),
    "gemma3": GgufCase("gemma3", "gemma3", _GEMMA3, {"attention__sliding_window": WINDOW} | _LINEAR),
    "gemma3-pattern": GgufCase(
        "gemma3", "gemma3", {"query_pre_attn_scalar": 16, "final_logit_softcapping": 3.0},
        {
            "attention__sliding_window": WINDOW, "attention__sliding_window_pattern": 2, "rope__freq_base_swa": 10000.0,
            "final_logit_softcapping": 3.0,
        } | _LINEAR,
    ),
    "gemma3-no-window": GgufCase("gemma3", "gemma3", _GEMMA3 | {"layer_types": ["full_attention"] * 7}, _LINEAR),
    "glm": GgufCase("glm", "chatglm", {"rms_norm_eps": 1e-5, "hidden_size": 96},
                    {"rope__dimension_count": 8}, sized=False),
    "glm-edge": GgufCase("glm", "chatglm", {"partial_rotary_factor": 1.0, "hidden_size": 96},
                         {"rope__dimension_count": 16}, sized=False),
    "glm4": GgufCase("glm4", "glm4", settings={"rope__dimension_count": 8}),
    "ernie45": GgufCase("ernie45", "ernie4_5"),
    "ernie45-tied": GgufCase("ernie45", "ernie4_5", {"use_bias": False, "tie_word_embeddings": True}),
    "exaone4": GgufCase("exaone4", "exaone4", {"rope_parameters": WIDE_LLAMA3}, _EXAONE4),
    "exaone4-full": GgufCase("exaone4-full", "exaone4", {"rope_parameters": WIDE_LLAMA3}),
    "seed-oss": GgufCase("seed-oss", "seed_oss"),
    "seed-oss-bias": GgufCase("seed-oss-bias", "seed_oss"),
}  # fmt: skip


def architectures_of(family: str) -> str:
    """llama.cpp's names of a row of the README's table, empty where it cannot convert the family."""
    names = [gguf.arch for gguf in GGUF_CASES.values() if CASES[gguf.case].family == family]
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))
