"""How text is cut before byte-pair merging, by the name that a GGUF file gives it in tokenizer.ggml.pre.

The names and what they stand for are llama.cpp's (src/llama-vocab.cpp); each is what the Hugging Face tokenizer of the
model that it is named after does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amk.errors import UnsupportedModelError

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_ENDINGS, _BREAKS, _SPACES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"\s*[\r\n]+", r"\s+(?!\S)|\s+"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_LLAMA3 = rf"{_ENDINGS}|{_BEFORE}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BREAKS}|{_SPACES}"
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_SEED = _QWEN2.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SIGNS = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BREAKS}|{_SPACES}"
_TEKKEN = rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}|{_SIGNS}"
_GPT4O = rf"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_BEFORE}{_UPPER}+{_LOWER}*{_ENDINGS}?|\p{{N}}{{1,3}}|{_SIGNS}"


@dataclass(frozen=True)
class PreTokenizerRule:
    """Regular expressions applied one after another, each cutting the pieces of the one before at its matches.

    `ignore_merges`: a piece that is a token of the vocabulary is that token, whatever the merges say. `add_bos`: what
    holds where the file does not say whether a text starts with the bos token.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_DIGITS_APART = PreTokenizerRule((r"\p{N}", _GPT2))
_PLAIN = PreTokenizerRule((_GPT2,))
_QWEN2_RULE = PreTokenizerRule((_QWEN2,))
_CL100K = PreTokenizerRule((_LLAMA3,))
_LLAMA3_RULE = PreTokenizerRule((_LLAMA3,), ignore_merges=True, add_bos=True)
RULES: dict[str, PreTokenizerRule] = {
    "smollm": _DIGITS_APART,
    "starcoder": _DIGITS_APART,
    "refact": _DIGITS_APART,
    "command-r": _DIGITS_APART,
    "codeshell": _DIGITS_APART,
    "gpt-2": _PLAIN,
    "mpt": _PLAIN,
    "olmo": _PLAIN,
    "exaone4": _PLAIN,
    "a.x-4.0": _PLAIN,
    "llama-bpe": _LLAMA3_RULE,
    "llama3": _LLAMA3_RULE,
    "llama-v3": _LLAMA3_RULE,
    "falcon3": _LLAMA3_RULE,
    "pixtral": _LLAMA3_RULE,
    "midm-2.0": _LLAMA3_RULE,
    "qwen2": _QWEN2_RULE,
    "deepseek-r1-qwen": _QWEN2_RULE,
    "megrez": _QWEN2_RULE,
    "dbrx": _CL100K,
    "smaug-bpe": _CL100K,
    "chatglm-bpe": _CL100K,
    "glm4": _CL100K,
    "seed-coder": PreTokenizerRule((_SEED,)),
    "gpt-4o": PreTokenizerRule((_GPT4O,)),
    "tekken": PreTokenizerRule((_TEKKEN,), ignore_merges=True, add_bos=True),
    "default": PreTokenizerRule((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
}


def rule_for(name: str) -> PreTokenizerRule:
    """The rule of a tokenizer.ggml.pre name. Raises UnsupportedModelError for one that amk does not know."""
    if name not in RULES:
        raise UnsupportedModelError(
            f"tokenizer.ggml.pre = {name!r} is not supported; supported: {', '.join(RULES)}; "
            "use the Hugging Face folder, or pass token ids"
        )
    return RULES[name]


def pre_tokenizer(rule: PreTokenizerRule) -> PreTokenizer:
    """The rule, followed by the byte-level alphabet."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    cuts: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    return Sequence([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])
