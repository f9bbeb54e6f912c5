"""Which architectures amk reads, and why it refuses the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amk.errors import UnsupportedModelError
from amk.model.families import FAMILIES, Family

SUPPORTED = tuple(FAMILIES)

_MOE = "it is a mixture of experts"
_MLA = "it uses multi-head latent attention (MLA)"
_LAYER_NORM = "it normalises with LayerNorm, amk implements RMSNorm only"
_ENCODER_DECODER = "it is an encoder-decoder model"
_MULTIMODAL = "it is multimodal"
_RECURRENT = "it has recurrent or state-space layers"
_NOT_YET = "amk does not implement it yet"

_REASONS = {
    "MixtralForCausalLM": _MOE,
    "Qwen2MoeForCausalLM": _MOE,
    "Qwen3MoeForCausalLM": _MOE,
    "OlmoeForCausalLM": _MOE,
    "GraniteMoeForCausalLM": _MOE,
    "DbrxForCausalLM": _MOE,
    "PhimoeForCausalLM": _MOE,
    "GptOssForCausalLM": "it is a mixture of experts with attention sinks",
    "DeepseekV2ForCausalLM": _MLA,
    "DeepseekV3ForCausalLM": _MLA,
    "MiniCPM3ForCausalLM": _MLA,
    "GPT2LMHeadModel": _LAYER_NORM,
    "GPTJForCausalLM": _LAYER_NORM,
    "GPTNeoForCausalLM": _LAYER_NORM,
    "GPTNeoXForCausalLM": _LAYER_NORM,
    "GPTBigCodeForCausalLM": _LAYER_NORM,
    "OPTForCausalLM": _LAYER_NORM,
    "BloomForCausalLM": _LAYER_NORM,
    "FalconForCausalLM": _LAYER_NORM,
    "MptForCausalLM": _LAYER_NORM,
    "PhiForCausalLM": _LAYER_NORM,
    "StableLmForCausalLM": _LAYER_NORM,
    "Starcoder2ForCausalLM": _LAYER_NORM,
    "OlmoForCausalLM": _LAYER_NORM,
    "CohereForCausalLM": _LAYER_NORM,
    "Cohere2ForCausalLM": _LAYER_NORM,
    "NemotronForCausalLM": _LAYER_NORM,
    "PersimmonForCausalLM": _LAYER_NORM,
    "MambaForCausalLM": _RECURRENT,
    "Mamba2ForCausalLM": _RECURRENT,
    "RwkvForCausalLM": _RECURRENT,
    "RecurrentGemmaForCausalLM": _RECURRENT,
    "JambaForCausalLM": _RECURRENT,
    "BambaForCausalLM": _RECURRENT,
    "FalconH1ForCausalLM": _RECURRENT,
    "NemotronHForCausalLM": _RECURRENT,
    "Lfm2ForCausalLM": "it has convolution layers",
    "Qwen3NextForCausalLM": _RECURRENT,
    "GraniteMoeHybridForCausalLM": _RECURRENT,
    "Gemma3nForCausalLM": "its layers are not those of a plain transformer (AltUp, per-layer embeddings)",
    "Ministral3ForCausalLM": "it scales its queries by position (llama_4_scaling_beta)",
    "ArceeForCausalLM": "its MLP has no gate",
    "Gemma3ForConditionalGeneration": _MULTIMODAL,
    "Mistral3ForConditionalGeneration": _MULTIMODAL,
    "T5ForConditionalGeneration": _ENCODER_DECODER,
    "BartForConditionalGeneration": _ENCODER_DECODER,
    "WhisperForConditionalGeneration": _ENCODER_DECODER,
    "MllamaForCausalLM": _MULTIMODAL,
    "Llama4ForCausalLM": _MOE,
}


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a config. Raises UnsupportedModelError naming the architecture that it found and the reason."""
    found, model_type = config.get("architectures"), config.get("model_type")
    by_type = {family.model_type: family for family in FAMILIES.values()}
    if found is None and isinstance(model_type, str) and model_type in by_type:
        return by_type[model_type]
    if not isinstance(found, list | tuple) or not found or not all(isinstance(name, str) for name in found):
        raise UnsupportedModelError(
            f"config.json: architectures = {found!r} (model_type {model_type!r}) names no architecture; {_supported()}"
        )
    for name in found:
        if name not in FAMILIES:
            raise UnsupportedModelError(f"architecture {name} is not supported: {_reason(name)}; {_supported()}")
    family = FAMILIES[found[0]]
    if model_type not in (None, family.model_type):
        raise UnsupportedModelError(
            f"config.json: model_type = {model_type!r} contradicts architectures = {list(found)}; "
            f'"{family.model_type}" is expected'
        )
    return family


def _supported() -> str:
    return "supported: " + ", ".join(SUPPORTED)


def _reason(name: str) -> str:
    """Why an architecture is refused: from the table, else from what its name says."""
    if name in _REASONS:
        return _REASONS[name]
    if "Moe" in name or "MoE" in name:
        return _MOE
    if "Vision" in name or "Image" in name or "VL" in name or "Llava" in name:
        return _MULTIMODAL
    if name.endswith("ForConditionalGeneration"):
        return "it is multimodal or an encoder-decoder model"
    if not name.endswith(("ForCausalLM", "LMHeadModel")):
        return "it has no language-model head to decode with"
    return _NOT_YET
