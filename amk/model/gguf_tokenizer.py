"""A tokenizer from the metadata of a GGUF file, built on the `tokenizers` package.

transformers can read it too, but takes 5 s over it and cuts text as GPT-2 does whatever tokenizer.ggml.pre says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from amk.errors import UnsupportedModelError
from amk.model.gguf_pretokenizers import pre_tokenizer, rule_for

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # values of tokenizer.ggml.token_type
_SPACE = "▁"  # how sentencepiece writes a space

Metadata = Mapping[str, Any]


def tokenizer_from_gguf(metadata: Metadata) -> Tokenizer:
    """The tokenizer that the metadata describes. Raises UnsupportedModelError for a kind that amk does not build."""
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        tokenizer, add_bos = _byte_level(metadata)
    elif model == "llama":
        tokenizer, add_bos = _sentencepiece(metadata), True
    else:
        raise UnsupportedModelError(
            f"tokenizer.ggml.model = {model!r} is not supported; supported: gpt2, llama; pass token ids instead"
        )
    _add_special_tokens(tokenizer, metadata)
    if metadata.get("tokenizer.ggml.add_bos_token", add_bos):
        _prepend_bos(tokenizer, metadata)
    return tokenizer


def special_token(metadata: Metadata, role: str) -> str | None:
    """The text of the bos or eos token, or None where the file names none."""
    index = metadata.get(f"tokenizer.ggml.{role}_token_id")
    tokens = metadata["tokenizer.ggml.tokens"]
    return str(tokens[index]) if index is not None and index < len(tokens) else None


def _byte_level(metadata: Metadata) -> tuple[Tokenizer, bool]:
    """(tokenizer, whether texts start with bos by default) of a byte-level BPE model."""
    from tokenizers import Tokenizer, decoders, models

    rule = rule_for(metadata.get("tokenizer.ggml.pre", "default"))
    pairs = (merge.split(" ", 1) for merge in metadata.get("tokenizer.ggml.merges", ()))
    merges = [(left, right) for left, right in pairs]
    tokenizer = Tokenizer(models.BPE(_vocab(metadata), merges, ignore_merges=rule.ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer(rule)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, rule.add_bos


def _sentencepiece(metadata: Metadata) -> Tokenizer:
    """A sentencepiece BPE model: pieces with scores, bytes for what they do not cover."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocab = _vocab(metadata)
    unknown = special_token(metadata, "unknown") or _first_of_type(metadata, _UNKNOWN)
    merges = _merges_from_scores(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"], vocab)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    prepend = [normalizers.Prepend(_SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prepend, normalizers.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _vocab(metadata: Metadata) -> dict[str, int]:
    return {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}


def _first_of_type(metadata: Metadata, kind: int) -> str | None:
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type", ())
    return next((token for token, found in zip(tokens, kinds, strict=False) if found == kind), None)


def _merges_from_scores(tokens: Sequence[str], scores: Sequence[float], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Merges in the order in which sentencepiece applies them: pieces by falling score, each from all its halves."""
    order = sorted(range(len(tokens)), key=lambda index: (-scores[index], index))
    merges = []
    for index in order:
        piece = tokens[index]
        halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        found = [(left, right) for left, right in halves if left in vocab and right in vocab]
        merges += sorted(found, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    return merges


def _add_special_tokens(tokenizer: Tokenizer, metadata: Metadata) -> None:
    """Control tokens are matched in the text and left out when decoding; user-defined ones are only matched."""
    from tokenizers import AddedToken

    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type", ())
    pairs = list(zip(tokens, kinds, strict=False))
    special = [AddedToken(token, special=True, normalized=False) for token, kind in pairs if kind == _CONTROL]
    plain = [AddedToken(token, special=False, normalized=False) for token, kind in pairs if kind == _USER_DEFINED]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(plain)


def _prepend_bos(tokenizer: Tokenizer, metadata: Metadata) -> None:
    from tokenizers.processors import TemplateProcessing

    bos = special_token(metadata, "bos")
    if bos is not None:
        index = int(metadata["tokenizer.ggml.bos_token_id"])
        tokenizer.post_processor = TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, index)])
