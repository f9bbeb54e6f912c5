"""Why GGUF architectures are refused, by llama.cpp's name of them."""

from __future__ import annotations

from collections.abc import Set

from amk.model.families import FAMILIES
from amk.model.refusals import REASONS, refusal_reason


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


_SHORT = {_plain(name.removesuffix("ForCausalLM")): name for name in REASONS}
# Where llama.cpp's name is not the class's: the class.
_CLASSES = {
    "command-r": "CohereForCausalLM", "deepseek2": "DeepseekV2ForCausalLM", "gpt2": "GPT2LMHeadModel",
    "hunyuan-dense": "HunYuanDenseV1ForCausalLM", "hunyuan-moe": "HunYuanMoEV1ForCausalLM",
    "phi2": "PhiForCausalLM", "qwen": "QWenLMHeadModel", "rwkv6": "RwkvForCausalLM", "rwkv7": "RwkvForCausalLM",
    "starcoder": "GPTBigCodeForCausalLM",
}  # fmt: skip


def gguf_refusal(name: str, read: Set[str]) -> str:
    """Why amk does not read GGUF files of the architecture `name`; `read` are the classes of those that it reads."""
    by_type = {family.model_type: family.architecture for family in FAMILIES.values()}
    if name in by_type and by_type[name] not in read:
        return (
            f"llama.cpp has no converter for {by_type[name]}, so nothing says what such a file holds; "
            "use the safetensors checkpoint"
        )
    known = _CLASSES.get(name, _SHORT.get(_plain(name)))
    return refusal_reason(known or f"{name.replace('moe', 'Moe').replace('vl', 'VL')}ForCausalLM")
