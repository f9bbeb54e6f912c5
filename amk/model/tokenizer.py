"""Text to token ids and back, for a Hugging Face folder or a GGUF file; transformers is imported only when needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.errors import UnsupportedModelError, UsageError
from amk.model.gguf_file import read_gguf
from amk.model.gguf_tokenizer import special_token, tokenizer_from_gguf

if TYPE_CHECKING:
    import tokenizers

Message = Mapping[str, str]
"""One chat message: {"role": ..., "content": ...}."""

_REPLACEMENT = "\ufffd"  # what decoding puts for bytes that are not (yet) UTF-8
_CONTEXT = 8  # tokens of the prompt that the first piece is decoded with


class Tokenizer:
    """Encodes and decodes with a `tokenizers` model; chat templates are rendered by transformers."""

    def __init__(self, backend: tokenizers.Tokenizer, chat_tokenizer: Callable[[], Any]) -> None:
        backend.no_truncation()  # tokenizer.json may ask for either; neither belongs to a prompt
        backend.no_padding()
        self._backend = backend
        self._chat_tokenizer = chat_tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, with the bos token where the model's tokenizer adds one."""
        return list(self._backend.encode(text).ids)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation up to where the assistant is to answer.

        Raises UsageError if the model has no chat template, or the template does not accept the messages.
        """
        tokenizer = self._chat_tokenizer()
        if not tokenizer.chat_template:
            raise UsageError("this model has no chat template; leave out --chat, or choose an instruction-tuned model")
        from jinja2 import TemplateError

        try:
            text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except (TemplateError, ValueError, TypeError, LookupError, AttributeError) as error:  # a template is a program
            raise UsageError(f"the model's chat template refuses these messages: {error}; change them") from error
        return list(self._backend.encode(text, add_special_tokens=False).ids)  # the template writes bos itself

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        return self._backend.decode(list(ids), skip_special_tokens=True)


class StreamDecoder:
    """Text of a growing list of tokens, piece by piece; the pieces add up to the text of the whole.

    A token alone may be part of a character, or lose its leading space; so tokens are decoded together with those of
    the piece before, and held back while the text ends inside a character. `context` is what came before the first
    token (the prompt): with it, the first piece keeps the space that parts it from the prompt.
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._shown = list(context[-_CONTEXT:])  # tokens whose text is out, as context for the next
        while self._shown and tokenizer.decode(self._shown).startswith(_REPLACEMENT):
            del self._shown[0]  # the cut went through a character
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        """Text that this token completes; empty while a character is incomplete."""
        self._pending.append(token)
        text = self._pending_text()
        return "" if text.endswith(_REPLACEMENT) else self._emit(text)

    def flush(self) -> str:
        """What is still held back, at the end: incomplete characters come out as U+FFFD."""
        return self._emit(self._pending_text())

    def _pending_text(self) -> str:
        before = self._tokenizer.decode(self._shown)
        return self._tokenizer.decode(self._shown + self._pending)[len(before) :]

    def _emit(self, text: str) -> str:
        # Special tokens decode to nothing, so the context grows until it holds something that has a text.
        self._shown = self._pending if text else self._shown + self._pending
        self._pending = []
        return text


def _transformers() -> Any:
    """The transformers package, imported without its remark that torch is missing, which amk does not need."""
    name = "TRANSFORMERS_NO_ADVISORY_WARNINGS"  # the only switch that works before the import
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        import transformers
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
    return transformers


def load_tokenizer(source: Path) -> Tokenizer:
    """The tokenizer of a model folder or .gguf file. Raises UnsupportedModelError if it has none that amk can build."""
    return _from_gguf(source) if source.is_file() else _from_folder(source)


def _from_folder(folder: Path) -> Tokenizer:
    auto = _transformers().AutoTokenizer
    try:
        tokenizer = auto.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        backend = tokenizer.backend_tokenizer
    except (OSError, ValueError, KeyError, ImportError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UnsupportedModelError(
            f"{folder}: its tokenizer cannot be loaded ({reason}); add tokenizer.json, or pass token ids"
        ) from error
    return Tokenizer(backend, lambda: tokenizer)


def _from_gguf(path: Path) -> Tokenizer:
    metadata = read_gguf(path).metadata
    backend = tokenizer_from_gguf(metadata)

    def chat_tokenizer() -> Any:
        names = {f"{role}_token": special_token(metadata, role) for role in ("bos", "eos")}
        template = metadata.get("tokenizer.chat_template")
        return _transformers().PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=template, **names)

    return Tokenizer(backend, chat_tokenizer)
