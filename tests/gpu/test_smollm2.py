"""SmolLM2-135M on the GPU against transformers: every prompt, over 2,000 tokens too, every buffer poisoned before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amk
from amk.model.source import open_model
from amk.runtime.cuda import CudaMachine
from amk.runtime.machine import Launch
from amk.runtime.session import Session
from amk.tape import pack_tape
from tests.gpu.probe import Sliced, fresh, tape
from tests.reference import smollm2

MAX_SEQ = 2304
RERUNS = 20


@pytest.fixture(scope="module", params=["fp16", "fp32"])
def kv_dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def session(kv_dtype: str, smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    out = tmp_path_factory.mktemp("smollm2") / kv_dtype
    amk.build(smollm2_gguf, max_seq=MAX_SEQ, kv_dtype=kv_dtype, out=out)
    with amk.load(out) as loaded:
        assert isinstance(loaded.machine, CudaMachine), "auto takes the GPU that fits"
        yield loaded


def machine_of(session: Session) -> CudaMachine:
    assert isinstance(session.machine, CudaMachine)
    return session.machine


@pytest.mark.parametrize("name", smollm2.names(full=True))
def test_logits_are_the_references(session: Session, kv_dtype: str, name: str, smollm2_hf: Any) -> None:
    smollm2.check_logits(fresh(session), smollm2.references()[name], kv_dtype, smollm2_hf)


@pytest.mark.parametrize("name", smollm2.names(full=True))
def test_generation_is_the_references(session: Session, kv_dtype: str, name: str) -> None:
    reference = smollm2.references()[name]
    result = smollm2.unstoppable(fresh(session)).generate(reference.prompt, max_new_tokens=len(reference.tokens))
    smollm2.check_tokens(reference, result.token_ids, kv_dtype)


def test_reruns_are_bit_identical(session: Session) -> None:
    for name in ("chat", "300-tokens"):
        reference = smollm2.references()[name]
        ids = [*reference.prompt, *reference.tokens]
        logits = fresh(session).logits(ids)
        tokens = fresh(session).generate(reference.prompt, 64).token_ids
        for _ in range(RERUNS):
            assert fresh(session).logits(ids).tobytes() == logits.tobytes()
            assert fresh(session).generate(reference.prompt, 64).token_ids == tokens


@pytest.mark.parametrize("slice_steps", [1, 7, 100, 5000])
def test_launch_slices_change_no_bit(session: Session, slice_steps: int) -> None:
    reference = smollm2.references()["300-tokens"]
    ids = [*reference.prompt, *reference.tokens]
    expected = fresh(session).logits(ids)
    fresh(session)
    sliced = Session(Sliced(machine_of(session), slice_steps), replace(session.graph, eos_token_ids=()))
    assert sliced.logits(ids).tobytes() == expected.tobytes()
    fresh(session)
    sliced._decoder.history.clear()
    assert sliced.generate(reference.prompt, 64).token_ids == [int(row.argmax()) for row in expected[299:-1]]


def test_a_prompt_without_logits_gives_the_same_last_ones(session: Session) -> None:
    ids = smollm2.references()["300-tokens"].prompt
    expected = fresh(session).logits(ids)[-1]
    machine = machine_of(fresh(session))
    machine.reset(len(ids))
    result = machine.run(Launch(0, ids, len(ids), len(ids) - 1, want_logits=True), lambda _: None)
    assert result.logits is not None
    assert result.logits.shape == (1, machine.vocab)
    assert result.logits[0].tobytes() == expected.tobytes()


def test_reused_kv_changes_no_bit(session: Session) -> None:
    reference = smollm2.references()["300-tokens"]
    fresh(session).generate(reference.prompt, 30)
    extended = [*reference.prompt, *reference.tokens[:10], 504, 2988]
    reused = session.generate(extended, 20)
    assert reused.timings.reused_tokens >= 300
    assert reused.token_ids == fresh(session).generate(extended, 20).token_ids


def test_cancel_ends_soon_and_keeps_what_there_is(session: Session) -> None:
    ids = smollm2.references()["capital"].prompt
    endless = smollm2.unstoppable(fresh(session))
    expected = endless.generate(ids, 1500).token_ids
    assert len(expected) == 1500
    stream = endless.stream(ids, 1500)
    got = [next(stream).id for _ in range(5)]
    endless.cancel()
    got += [token.id for token in stream]
    assert len(got) < 1500
    assert got == expected[: len(got)]
    again = endless.generate([*ids, *got], 20)
    assert again.timings.reused_tokens > 0
    assert again.token_ids == expected[len(got) : len(got) + 20]


def test_a_stop_token_ends_an_answer(session: Session) -> None:
    reference = smollm2.references()["capital"]
    result = fresh(session).generate("The capital of France is", max_new_tokens=64)
    assert result.finish_reason == "stop"
    assert result.token_ids == reference.tokens[: reference.tokens.index(2) + 1]
    assert result.text.startswith(" Paris.")


def test_tapes_are_those_of_the_packer(session: Session, smollm2_gguf: Path) -> None:
    machine, checkpoint = machine_of(session), open_model(smollm2_gguf).checkpoint
    for sm in (0, 1, machine.program.sms // 2, machine.program.sms - 1):
        np.testing.assert_array_equal(tape(machine, sm), pack_tape(machine.program, checkpoint, sm))
