"""Config files of published models, as far as they matter: for compiling and for GPU tests with random weights.

Windows are shorter than published, where a test would otherwise not reach them.
"""

from __future__ import annotations

from typing import Any

PHI_DIVISORS = {"short_factor": [1.0 + 0.01 * i for i in range(48)], "long_factor": [1.0 + 0.5 * i for i in range(48)]}


def config(
    architecture: str, model_type: str, sizes: tuple[int, int, int, int, int, int], **more: Any
) -> dict[str, Any]:
    """A config.json; `sizes` are hidden, intermediate, layers, heads, K/V heads and vocabulary."""
    names = (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "vocab_size",
    )  # fmt: skip
    base = {"architectures": [architecture], "model_type": model_type, "eos_token_id": 1}
    return base | {"max_position_embeddings": 32768} | dict(zip(names, sizes, strict=True)) | more


WIDE = 5000
"""Hidden sizes from here on take gigabytes a layer."""


def with_layers(config: dict[str, Any], narrow: int, wide: int) -> dict[str, Any]:
    """The config with at most so many layers; kernels do not depend on how many there are."""
    most = wide if config["hidden_size"] >= WIDE else narrow
    return config | {"num_hidden_layers": min(most, config["num_hidden_layers"])}


CONFIGS: dict[str, dict[str, Any]] = {
    "mistral-7b": config(
        "MistralForCausalLM", "mistral", (4096, 14336, 32, 32, 8, 32000), sliding_window=1024, rms_norm_eps=1e-5
    ),
    "ministral-8b": config("MinistralForCausalLM", "ministral", (4096, 12288, 36, 32, 8, 131072), sliding_window=1024),
    "qwen2.5-0.5b": config(
        "Qwen2ForCausalLM", "qwen2", (896, 4864, 24, 14, 2, 151936), tie_word_embeddings=True, rope_theta=1e6
    ),
    "qwen2.5-7b": config("Qwen2ForCausalLM", "qwen2", (3584, 18944, 28, 28, 4, 152064), rope_theta=1e6),
    "qwen3-4b": config(
        "Qwen3ForCausalLM", "qwen3", (2560, 9728, 36, 32, 8, 151936), head_dim=128, rope_theta=1e6,
        tie_word_embeddings=True,
    ),
    "phi-3-mini": config(
        "Phi3ForCausalLM", "phi3", (3072, 8192, 32, 32, 32, 32064), sliding_window=2047, max_position_embeddings=4096,
    ),
    "phi-4-mini": config(
        "Phi3ForCausalLM", "phi3", (3072, 8192, 32, 24, 8, 200064), partial_rotary_factor=0.75,
        tie_word_embeddings=True, original_max_position_embeddings=4096,
        rope_scaling={"type": "longrope", **PHI_DIVISORS},
    ),
    "smollm3-3b": config(
        "SmolLM3ForCausalLM", "smollm3", (2048, 11008, 36, 16, 4, 128256), tie_word_embeddings=True, rope_theta=5e6
    ),
    "granite-3.3-2b": config(
        "GraniteForCausalLM", "granite", (2048, 8192, 40, 32, 8, 49159), tie_word_embeddings=True, rope_theta=1e7,
        attention_multiplier=0.015625, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=8.0,
    ),
    "olmo2-1b": config("Olmo2ForCausalLM", "olmo2", (2048, 8192, 16, 16, 16, 100352), rope_theta=5e5),
    "olmo2-7b": config("Olmo2ForCausalLM", "olmo2", (4096, 11008, 32, 32, 32, 100352), rope_theta=5e5),
    "olmo3-7b": config(
        "Olmo3ForCausalLM", "olmo3", (4096, 11008, 32, 32, 32, 100278), sliding_window=1024, rope_theta=5e5,
        rope_scaling={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192},
    ),
    "gemma-2b": config("GemmaForCausalLM", "gemma", (2048, 16384, 18, 8, 1, 256000), hidden_act="gelu_pytorch_tanh"),
    "gemma2-2b": config("Gemma2ForCausalLM", "gemma2", (2304, 9216, 26, 8, 4, 256000), sliding_window=1024),
    "gemma3-1b": config(
        "Gemma3ForCausalLM", "gemma3_text", (1152, 6912, 26, 4, 1, 262144), sliding_window=512, rope_theta=1e6,
        rope_local_base_freq=10000.0, sliding_window_pattern=6,
    ),
    "vaultgemma-1b": config(
        "VaultGemmaForCausalLM", "vaultgemma", (1152, 6912, 26, 4, 4, 256000), sliding_window=512
    ),
    "glm-4-9b": config("GlmForCausalLM", "glm", (4096, 13696, 40, 32, 2, 151552), attention_bias=True),
    "glm-4-9b-0414": config("Glm4ForCausalLM", "glm4", (4096, 13696, 40, 32, 2, 151552), attention_bias=False),
    "helium-2b": config("HeliumForCausalLM", "helium", (2560, 7040, 24, 20, 20, 48000)),
    "ernie-4.5-0.3b": config("Ernie4_5ForCausalLM", "ernie4_5", (1024, 3072, 18, 16, 2, 103424)),
    "exaone-4.0-1.2b": config(
        "Exaone4ForCausalLM", "exaone4", (2048, 4096, 30, 32, 8, 102400), rope_theta=1e6, sliding_window=1024,
        tie_word_embeddings=True,
    ),
    "seed-oss-36b": config("SeedOssForCausalLM", "seed_oss", (5120, 27648, 64, 80, 8, 155136), rope_theta=1e7),
    "cwm-32b": config("CwmForCausalLM", "cwm", (6144, 21504, 64, 48, 8, 128256), sliding_window=1024),
    "hyperclovax-14b": config(
        "HyperCLOVAXForCausalLM", "hyperclovax", (6144, 14336, 38, 48, 8, 110592), rope_theta=1e6,
        embedding_multiplier=10.0, attention_multiplier=0.0078125, logits_scaling=0.125, head_dim=128,
    ),
}  # fmt: skip
