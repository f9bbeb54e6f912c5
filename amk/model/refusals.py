"""Why architectures are refused, by name: those that transformers has a causal language model of."""

from __future__ import annotations

_MOE = "it is a mixture of experts"
_MULTIMODAL = "it is multimodal"
_NO_GATE = "its MLP has no gate"

_BY_REASON: dict[str, str] = {
    _MOE: """
        Mixtral Qwen2Moe Qwen3Moe Qwen3_5Moe Olmoe FlexOlmo GraniteMoe GraniteMoeShared Dbrx Phimoe Llama4 Dots1
        Ernie4_5_Moe ExaoneMoe Glm4Moe HunYuanMoEV1 JetMoe MiniMaxM2 SolarOpen Afmoe AriaText Beam HYV3 HYV4 Inkling
        Inkling2 Inkling2Loop Kolibri1 Laguna Lfm2Moe Mellum Qwen4Exp DeepseekV4""",
    "it is a mixture of experts with attention sinks": "GptOss MiMoV2Flash Flint",
    "it has attention sinks": "GraniteSWA",
    "it uses multi-head latent attention (MLA)": """
        DeepseekV2 DeepseekV3 DeepseekV32 MiniCPM3 Youtu LongcatFlash AXK1 AXK2 Glm4MoeLite GlmMoeDsa Dots3Note""",
    "it normalises with LayerNorm, amk implements RMSNorm only": """
        GPT2LMHeadModel GPTJ GPTNeo GPTNeoX GPTNeoXJapanese GPTBigCode OPT Bloom Falcon Mpt Phi StableLm Starcoder2 Olmo
        Cohere Cohere2 CohereCompass Nemotron Persimmon CodeGen BioGpt XGLM CTRLLMHeadModel OpenAIGPTLMHeadModel Jais2
        ModernBertDecoder""",
    "it has recurrent or state-space layers": """
        Mamba Mamba2 FalconMamba Rwkv RecurrentGemma Jamba Bamba FalconH1 NemotronH Qwen3Next Qwen3_5 GraniteMoeHybrid
        Zamba Zamba2 Zaya xLSTM KimiLinear MiniMax OlmoHybrid BailingHybrid LaraMini""",
    "it has convolution layers": "Lfm2 Lfm3",
    "it runs its layers several times for a token": "HrmText Dory",
    "its layers are not those of a plain transformer (per-layer embeddings, shared K/V)": """
        Gemma3n Gemma4 Gemma4Assistant Gemma4Unified Gemma4UnifiedAssistant""",
    "it scales its queries by position (llama_4_scaling_beta)": "Ministral3",
    "it norms q and k after rotating them": "HunYuanDenseV1",
    "it subtracts one attention from another": "DiffLlama",
    "it masks attention by a learned function of the values": "Doge",
    "its weights are ternary and its activations quantised": "BitNet",
    "it reads bytes in patches, not tokens": "Blt",
    _NO_GATE: "Arcee NanoChat Apertus Apertus1p5Text",
    "transformers has no code of its own for it, so there is nothing to compare with": """
        MiniCPM InternLM InternLM2 InternLM3 Baichuan BaiChuan Aquila Orion Xverse DeciLM QWenLMHeadModel ChatGLM
        ChatGLMModel Telechat Exaone Yi Phi3Small""",
    _MULTIMODAL: """
        Gemma3ForConditionalGeneration Mistral3ForConditionalGeneration Mllama Emu3 Fuyu Git Phi4Multimodal Moshi
        Musicgen MusicgenMelody TrOCR""",
    "it is an encoder-decoder model": """
        T5ForConditionalGeneration BartForConditionalGeneration WhisperForConditionalGeneration Bart BigBirdPegasus
        Blenderbot BlenderbotSmall MBart Marian Mvp PLBart Pegasus ProphetNet Whisper""",
    "it is an encoder, made to fill gaps": """
        BertLMHeadModel BertGenerationDecoder BigBird Camembert CpmAnt Data2VecText Electra Ernie MegatronBert
        ReformerModelWithLMHead RemBert RoCBert RoFormer Roberta RobertaPreLayerNorm XLMRoberta XLMRobertaXL
        XLMWithLMHeadModel XLNetLMHeadModel Xmod""",
}
_SUFFIXES = ("ForCausalLM", "GLMModel", "LMHeadModel", "WithLMHead", "ForConditionalGeneration", "Decoder")


def _named(short: str) -> str:
    """The class that a name in the table stands for: that of the causal language model, unless it is given whole."""
    return short if short.endswith(_SUFFIXES) and short != "ModernBertDecoder" else f"{short}ForCausalLM"


REASONS: dict[str, str] = {_named(name): reason for reason, names in _BY_REASON.items() for name in names.split()}


def refusal_reason(name: str) -> str:
    """Why an architecture is refused: from the table, else from what its name says."""
    if name in REASONS:
        return REASONS[name]
    if "Moe" in name or "MoE" in name:
        return _MOE
    if any(word in name for word in ("Vision", "Image", "VL", "Llava")):
        return _MULTIMODAL
    if name.endswith("ForConditionalGeneration"):
        return "it is multimodal or an encoder-decoder model"
    if not name.endswith(("ForCausalLM", "LMHeadModel")):
        return "it has no language-model head to decode with"
    return "amk does not implement it yet"
