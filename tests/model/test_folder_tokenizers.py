"""Tokenizers of folders without tokenizer.json, and chat templates wherever a folder keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amk.errors import UsageError
from amk.model.tokenizer import load_tokenizer
from tests.model.builders import save_hf

TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}{% endfor %}"
PIECES = ["he", "ll", "hell", "hello", "▁hello", "▁w", "or", "▁wor", "ld", "▁world", "▁", *"helowrd", "é"]


@pytest.fixture
def sentencepiece_folder(tmp_path: Path) -> Path:
    """A folder as of Llama 2: tokenizer.model (byte fallback, a space put before the text) and its config."""
    proto = pytest.importorskip("sentencepiece.sentencepiece_model_pb2").ModelProto()
    proto.trainer_spec.model_type = 2  # BPE
    proto.trainer_spec.byte_fallback = True
    proto.normalizer_spec.remove_extra_whitespaces = False
    add(proto, "<unk>", 2)
    add(proto, "<s>", 3)
    add(proto, "</s>", 3)
    for byte in range(256):
        add(proto, f"<0x{byte:02X}>", 6)
    for rank, piece in enumerate(PIECES):
        add(proto, piece, 1, -rank)
    (tmp_path / "tokenizer.model").write_bytes(proto.SerializeToString())
    settings = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"add_bos_token": True}))
    return tmp_path


def add(proto: Any, piece: str, kind: int, score: float = 0.0) -> None:
    entry = proto.pieces.add()
    entry.piece, entry.type, entry.score = piece, kind, score


def configure(folder: Path, **settings: Any) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def test_sentencepiece(sentencepiece_folder: Path) -> None:
    tokenizer = load_tokenizer(sentencepiece_folder)
    first = 3 + 256
    ids = tokenizer.encode("hello world ñ")
    assert ids == [1, first + 4, first + 9, first + 10, 3 + 0xC3, 3 + 0xB1]
    assert tokenizer.decode(ids) == "hello world ñ"


def test_model_with_sentencepiece(sentencepiece_folder: Path) -> None:
    from amk.model.source import open_model

    save_hf(sentencepiece_folder)
    assert open_model(sentencepiece_folder).tokenizer_source == sentencepiece_folder


def test_vocabulary_and_merges(tmp_path: Path) -> None:
    """As of GPT-2: byte-level BPE in two files."""
    from amk.model.source import open_model

    save_hf(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    source = open_model(tmp_path).tokenizer_source
    assert source is not None
    assert load_tokenizer(source).encode("abba") == [2, 1, 0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with tokenizer.json and no chat template."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    letters = {letter: index for index, letter in enumerate("<>[] abcdefghijklmnopqrstuvwxyz")}
    backend = Tokenizer(models.BPE(letters, [], byte_fallback=False))
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<").save_pretrained(tmp_path)
    return tmp_path


def chat(folder: Path) -> str:
    tokenizer = load_tokenizer(folder)
    ids = tokenizer.encode_chat([{"role": "user", "content": "hi"}])
    return "".join(tokenizer._backend.id_to_token(token) for token in ids)


def test_template_in_a_file(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert chat(folder) == "<[user] hi"


def test_template_in_the_config(folder: Path) -> None:
    configure(folder, chat_template=TEMPLATE)
    assert chat(folder) == "<[user] hi"


def test_the_file_goes_before_the_config(folder: Path) -> None:
    configure(folder, chat_template="config")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert chat(folder) == "<[user] hi"


def test_several_templates_of_which_one_is_the_default(folder: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": TEMPLATE}]
    configure(folder, chat_template=named)
    assert chat(folder) == "<[user] hi"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ([{"name": "a", "template": "x"}, {"name": "b", "template": "x"}], "multiple chat templates"),
        ("{% for m in messages %}", "Unexpected end of template"),
        ("{{ messages[0]['x'].y }}", "has no attribute 'x'"),
        ("{{ messages[0]['content'] + 1 }}", "can only concatenate"),
        ("{{ messages[0]['content'].encode('x') }}", "encod"),
    ],
    ids=["no default", "syntax", "undefined", "type", "lookup"],
)
def test_templates_that_cannot_be_used(folder: Path, template: Any, message: str) -> None:
    configure(folder, chat_template=template)
    with pytest.raises(UsageError, match=f"chat template refuses these messages: .*{message}"):
        chat(folder)
