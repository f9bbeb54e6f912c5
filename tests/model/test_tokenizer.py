"""Tokenizers: folders as transformers reads them, GGUF metadata against the same model in `tokenizers`, streaming."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amk.errors import UnsupportedModelError, UsageError
from amk.model.gguf_pretokenizers import RULES, pre_tokenizer
from amk.model.gguf_tokenizer import tokenizer_from_gguf
from amk.model.tokenizer import StreamDecoder, Tokenizer, load_tokenizer

TEXTS = [
    "The capital of France is",
    "x = 12345 + 6.7  # two  spaces\n\n\tdef f():\r\n",
    "don't I'LL café naïve Ünïcode",
    "日本語のテキスト、中文 и русский",
    "emoji 🤖 and 🏳️‍🌈 done",
    " leading and trailing ",
    "",
    "<|start|>user\nhi<|end|>",
]
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def byte_level(pattern: str | None, ignore_merges: bool) -> Any:
    """A byte-level BPE tokenizer trained on the texts, built the way the models' own tokenizer.json files are."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    cut = pre_tokenizers.Split(Regex(pattern), "isolated") if pattern else pre_tokenizers.Digits(individual_digits=True)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|bos|>", "<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def metadata_of(tokenizer: Any, pre: str, **more: Any) -> dict[str, Any]:
    """What llama.cpp's converter writes for a byte-level tokenizer."""
    import json

    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    } | more


LLAMA3 = RULES["llama-bpe"].patterns[0]


@pytest.mark.parametrize(
    ("pre", "pattern", "add_bos"),
    [("smollm", None, False), ("llama-bpe", LLAMA3, True), ("tekken", RULES["tekken"].patterns[0], True)],
)
@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_from_metadata(pre: str, pattern: str | None, add_bos: bool, text: str) -> None:
    original = byte_level(pattern, ignore_merges=pattern is not None)
    built = tokenizer_from_gguf(metadata_of(original, pre))
    ids = original.encode(text).ids
    assert built.encode(text).ids == [0] * add_bos + ids
    assert built.encode(text, add_special_tokens=False).ids == ids
    assert built.decode(ids) == original.decode(ids)


def test_digits_are_apart() -> None:
    built = tokenizer_from_gguf(metadata_of(byte_level(None, False), "smollm"))
    assert [token.lstrip("Ġ") for token in built.encode("a 2024").tokens[-4:]] == ["2", "0", "2", "4"]
    default = tokenizer_from_gguf(metadata_of(byte_level(None, False), "default"))
    assert default.encode("12345").ids == built.encode("12345").ids  # this vocabulary has no number tokens


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("qwen2", ["We", "'LL", " see", ":", " ", "1", "2", "3", "4", "?!\n\n", "helloWorld"]),
        ("deepseek-r1-qwen", ["We", "'LL", " see", ":", " ", "1", "2", "3", "4", "?!\n\n", "helloWorld"]),
        ("glm4", ["We", "'LL", " see", ":", " ", "123", "4", "?!\n\n", "helloWorld"]),
        ("chatglm-bpe", ["We", "'LL", " see", ":", " ", "123", "4", "?!\n\n", "helloWorld"]),
        ("seed-coder", ["We", "'LL", " see", ":", " ", "1", "2", "3", "4", "?!", "\n\n", "helloWorld"]),
        ("exaone4", ["We", "'", "LL", " see", ":", " 1234", "?!", "\n", "\n", "helloWorld"]),
        ("gpt-4o", ["We'LL", " see", ":", " ", "123", "4", "?!\n\n", "hello", "World"]),
        ("tekken", ["We", "'LL", " see", ":", " ", "1", "2", "3", "4", "?!\n\n", "hello", "World"]),
    ],
)
def test_where_text_is_cut(pre: str, pieces: list[str]) -> None:
    """The pieces are what the expression says, worked out by hand."""
    text = "We'LL see: 1234?!\n\nhelloWorld"
    cut = pre_tokenizer(RULES[pre]).pre_tokenize_str(text)
    assert [text[begin:end] for _, (begin, end) in cut] == pieces


def test_the_file_decides_on_bos() -> None:
    original = byte_level(LLAMA3, True)
    without = tokenizer_from_gguf(metadata_of(original, "llama-bpe", **{"tokenizer.ggml.add_bos_token": False}))
    assert without.encode("hi").ids == original.encode("hi").ids
    with_bos = tokenizer_from_gguf(metadata_of(original, "smollm", **{"tokenizer.ggml.add_bos_token": True}))
    assert with_bos.encode("hi").ids[0] == 0


def sentencepiece_metadata() -> dict[str, Any]:
    """A small model in sentencepiece's manner: scores fall with rank, bytes cover the rest."""
    words = [
        "▁",
        "h",
        "e",
        "l",
        "o",
        "w",
        "r",
        "d",
        "he",
        "ll",
        "hell",
        "hello",
        "▁hello",
        "▁w",
        "or",
        "▁wor",
        "ld",
        "▁world",
    ]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + words
    scores = [0.0] * 259 + [-1000.0 if len(word) == 1 else -float(rank) for rank, word in enumerate(words)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(words),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("hello world", ["<s>", "▁hello", "▁world"]),
        ("  hello", ["<s>", "▁", "▁", "▁hello"]),
        ("é", ["<s>", "▁", "<0xC3>", "<0xA9>"]),
        ("hello</s>hello", ["<s>", "▁hello", "</s>", "▁hello"]),
    ],
)
def test_sentencepiece_from_metadata(text: str, pieces: list[str]) -> None:
    built = tokenizer_from_gguf(sentencepiece_metadata())
    assert built.encode(text).tokens == pieces
    assert "</s>" in text or built.decode(built.encode(text).ids) == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.pre": "mystery"}, "tokenizer.ggml.pre = 'mystery' is not supported; supported: smollm"),
        ({"tokenizer.ggml.model": "bert"}, "tokenizer.ggml.model = 'bert' is not supported; supported: gpt2, llama"),
    ],
)
def test_unknown_tokenizers_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        tokenizer_from_gguf(metadata_of(byte_level(None, False), "smollm", **change))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with the tokenizer files that transformers writes, and a bos token."""
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    original = byte_level(LLAMA3, True)
    original.post_processor = TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", 0)])
    path = tmp_path_factory.mktemp("tok") / "with space"
    PreTrainedTokenizerFast(
        tokenizer_object=original, bos_token="<|bos|>", eos_token="<|end|>", chat_template=TEMPLATE
    ).save_pretrained(path)
    return path


@pytest.mark.parametrize("text", TEXTS)
def test_folder_encodes_as_transformers(folder: Path, text: str) -> None:
    from transformers import AutoTokenizer

    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    assert ours.encode(text) == theirs.encode(text)
    assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text), skip_special_tokens=True)


def test_chat_template(folder: Path) -> None:
    from transformers import AutoTokenizer

    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "hi 日本"}]
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ours.encode_chat(messages) == expected
    assert expected[0] == 1  # <|start|>: the template writes no bos, and none is added


def test_no_chat_template() -> None:
    class Plain:
        chat_template = None

    tokenizer = Tokenizer(byte_level(None, False), Plain)
    with pytest.raises(UsageError, match="no chat template; leave out --chat"):
        tokenizer.encode_chat([{"role": "user", "content": "x"}])


def test_template_that_refuses(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    tokenizer._chat_tokenizer().chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(UsageError, match="chat template refuses these messages: no system role"):
        tokenizer.encode_chat([{"role": "system", "content": "x"}])


def test_folder_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="its tokenizer cannot be loaded"):
        load_tokenizer(tmp_path)


def tokenizers() -> Iterator[Tokenizer]:
    yield Tokenizer(byte_level(None, False), lambda: None)
    yield Tokenizer(tokenizer_from_gguf(sentencepiece_metadata()), lambda: None)


@pytest.mark.parametrize("text", [*TEXTS, "hello world  hello", "🤖🤖é"])
def test_stream_adds_up_to_the_whole(text: str) -> None:
    for tokenizer in tokenizers():
        ids = tokenizer.encode(text)
        stream = StreamDecoder(tokenizer)
        pieces = [stream.push(token) for token in ids]
        assert "".join(pieces) + stream.flush() == tokenizer.decode(ids)
        assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("cut", range(1, 24))
def test_stream_after_a_prompt(cut: int) -> None:
    """With the prompt as context, prompt and pieces add up, spaces included, wherever the prompt ends."""
    for tokenizer in tokenizers():
        ids = tokenizer.encode("hello world é🤖日本 hello world 🤖é hello")
        stream = StreamDecoder(tokenizer, ids[:cut])
        text = "".join(stream.push(token) for token in ids[cut:]) + stream.flush()
        if not tokenizer.decode(ids[:cut]).endswith("\ufffd"):
            assert tokenizer.decode(ids[:cut]) + text == tokenizer.decode(ids)


def test_stream_flushes_half_a_character() -> None:
    tokenizer = next(tokenizers())
    ids = tokenizer.encode("a🤖")
    stream = StreamDecoder(tokenizer)
    assert "".join(stream.push(token) for token in ids[:-1]) == "a"
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""
