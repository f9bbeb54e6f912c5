"""SmolLM2-135M on the CPU runtime: built from the GGUF, decoded from the artifact's tables, against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amk
from amk.model.source import open_model
from amk.runtime.session import Session
from tests.reference import smollm2
from tests.reference.hf import greedy

MAX_SEQ = 2304


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", smollm2.names(bool(metafunc.config.getoption("--full"))))


@pytest.fixture(scope="module", params=["fp16", "fp32"])
def kv_dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def session(kv_dtype: str, smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    out = tmp_path_factory.mktemp("smollm2") / kv_dtype
    amk.build(smollm2_gguf, gpu="h200", max_seq=MAX_SEQ, kv_dtype=kv_dtype, out=out)
    with amk.load(out, device="cpu") as loaded:
        yield loaded


def test_the_reference_is_of_this_checkpoint(smollm2_gguf: Path) -> None:
    assert open_model(smollm2_gguf).checkpoint.digest == smollm2.stored()["checkpoint"]["digest"]


def test_logits_and_tokens_are_the_references(session: Session, kv_dtype: str, name: str, smollm2_hf: Any) -> None:
    reference = smollm2.references()[name]
    smollm2.check_logits(session, reference, kv_dtype, smollm2_hf)
    result = smollm2.unstoppable(session).generate(reference.prompt, max_new_tokens=len(reference.tokens))
    smollm2.check_tokens(reference, result.token_ids, kv_dtype)


def test_every_logit_of_a_prompt(session: Session, kv_dtype: str, smollm2_hf: Any) -> None:
    """The stored reference keeps a part of the vocabulary; here all of it, computed now."""
    ids = smollm2.references()["capital"].prompt
    tokens, expected = greedy(smollm2_hf, ids, 4)
    logits = session.logits([*ids, *tokens[:-1]])[len(ids) - 1 :]
    error = np.linalg.norm(logits - expected.numpy()) / np.linalg.norm(expected.numpy())
    assert error < smollm2.MAX_ERROR[kv_dtype]


def test_a_stop_token_ends_an_answer(session: Session) -> None:
    reference = smollm2.references()["capital"]
    result = session.generate(reference.prompt, max_new_tokens=64)
    assert result.finish_reason == "stop"
    assert result.token_ids == reference.tokens[: reference.tokens.index(2) + 1]
    assert result.text.startswith(" Paris.")
    chat = session.generate("Name three colours of the rainbow.", max_new_tokens=8, chat=True)
    assert chat.token_ids == smollm2.references()["chat"].tokens[:8]
