"""Sessions over the CPU machine: texts, tokens, reuse of K/V, cancelling, and every error of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from amk.errors import AmkError, DeviceError, UsageError
from amk.runtime.machine import Launch, LaunchResult
from amk.runtime.session import Session
from tests.runtime.models import machine_of, save_model, session_of, tokens_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path)
    return path


@pytest.fixture
def session(folder: Path) -> Iterator[Session]:
    with session_of(folder) as opened:
        yield opened


class Recorder:
    """A machine that notes its launches and may fail at one."""

    def __init__(self, folder: Path, slice_steps: int = 8) -> None:
        self.inner, self.model = machine_of(folder)
        self.max_seq, self.vocab, self.slice_steps = self.inner.max_seq, self.inner.vocab, slice_steps
        self.launches: list[Launch] = []
        self.resets: list[int] = []
        self.fail_at: int | None = None

    def reset(self, prompt_len: int) -> None:
        self.resets.append(prompt_len)
        self.inner.reset(prompt_len)

    def run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        self.launches.append(launch)
        if len(self.launches) == self.fail_at:
            raise DeviceError("the kernel hung")
        return self.inner.run(launch, on_token)

    def kv_rows(self, begin: int, end: int) -> npt.NDArray[np.float32]:
        return self.inner.kv_rows(begin, end)

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def recorder(folder: Path) -> Recorder:
    return Recorder(folder)


def session_on(recorder: Recorder) -> Session:
    return Session(recorder, recorder.model.graph)


def test_generate_and_stream_give_the_same_tokens(session: Session) -> None:
    ids = tokens_of(6)
    result = session.generate(ids, max_new_tokens=10)
    assert (len(result.token_ids), result.finish_reason, result.text) == (10, "length", "")
    assert [token.id for token in session.stream(ids, max_new_tokens=10)] == result.token_ids
    timings = result.timings
    assert (timings.prompt_tokens, timings.reused_tokens, timings.new_tokens) == (6, 0, 10)
    assert 0 < timings.first_token_seconds < timings.total_seconds
    assert timings.tokens_per_second > 0


def test_logits_of_a_prompt_choose_the_next_token(session: Session) -> None:
    ids = tokens_of(6)
    logits = session.logits(ids)
    assert logits.shape == (6, 1003)
    assert logits.dtype == np.float32
    assert session.generate(ids, 1).token_ids == [int(logits[-1].argmax())]


def test_launches_are_slices_with_logits_only_where_needed(recorder: Recorder) -> None:
    session_on(recorder).generate(tokens_of(19), max_new_tokens=14)
    shapes = [(launch.start_pos, len(launch.given), launch.steps, launch.head_from) for launch in recorder.launches]
    assert shapes == [(0, 8, 8, 8), (8, 8, 8, 8), (16, 3, 8, 2), (24, 1, 8, 0)]


def test_slices_do_not_change_the_tokens(folder: Path) -> None:
    ids = tokens_of(21)
    results = [session_on(Recorder(folder, size)).generate(ids, 12).token_ids for size in (1, 5, 64)]
    assert results[0] == results[1] == results[2]


class Restless(Recorder):
    """A machine whose slice is another one after every launch, as a GPU's is."""

    def run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        self.slice_steps = 1 + (self.slice_steps * 5 + 2) % 11
        return super().run(launch, on_token)


def test_slices_may_change_from_launch_to_launch(folder: Path) -> None:
    ids, restless = tokens_of(40), Restless(folder)
    steady = session_on(Recorder(folder, 64))
    logits = session_on(restless).logits(ids)
    assert [launch.start_pos for launch in restless.launches] != list(range(0, 40, 8))
    np.testing.assert_array_equal(logits, steady.logits(ids))
    assert session_on(Restless(folder)).generate(ids, 20).token_ids == steady.generate(ids, 20).token_ids


def test_an_extended_prompt_reuses_kv(recorder: Recorder) -> None:
    session, ids = session_on(recorder), tokens_of(10)
    first = session.generate(ids, 5).token_ids
    extended = [*ids, *first, 7, 8]
    second = session.generate(extended, 5)
    # The last sampled token has not been fed, so it has no K/V yet.
    assert second.timings.reused_tokens == 14
    assert recorder.resets == [10]
    assert second.token_ids == session_on(Recorder(recorder.model.path)).generate(extended, 5).token_ids


def test_another_prompt_reuses_what_it_shares(recorder: Recorder) -> None:
    session, ids = session_on(recorder), tokens_of(10)
    session.generate(ids, 5)
    assert session.generate([*ids[:4], 999, 998], 3).timings.reused_tokens == 4
    assert session.generate(ids[:3], 3).timings.reused_tokens == 2  # one token has to give the logits
    assert session.generate([1000, 3], 3).timings.reused_tokens == 0
    assert recorder.resets == [10, 2]


def test_kv_is_not_reused_after_a_failure_beyond_what_is_known(recorder: Recorder) -> None:
    session, ids = session_on(recorder), tokens_of(20)
    recorder.fail_at = 2
    with pytest.raises(DeviceError, match="hung"):
        session.generate(ids, 5)
    result = session.generate(ids, 5)
    assert result.timings.reused_tokens == 8
    assert result.token_ids == session_on(Recorder(recorder.model.path)).generate(ids, 5).token_ids


def test_dynamic_rope_reuses_only_within_the_trained_length(tmp_path: Path) -> None:
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    save_model(tmp_path, max_position_embeddings=32, rope_parameters=dynamic)
    session, ids = session_of(tmp_path), tokens_of(40)
    session.generate(ids[:10], 5)
    assert session.generate(ids[:20], 5).timings.reused_tokens == 10
    assert session.generate(ids, 5).timings.reused_tokens == 0
    assert session.generate([*ids, 1], 5).timings.reused_tokens == 0


def test_stop_tokens_end_a_generation(folder: Path, recorder: Recorder) -> None:
    from dataclasses import replace

    free = session_on(recorder).generate([5], 30).token_ids
    stop = next(token for token in free if token not in free[:5])
    graph = replace(recorder.model.graph, eos_token_ids=(stop,))
    result = Session(recorder, graph).generate([5], 30)
    assert result.token_ids == free[: free.index(stop) + 1]
    assert result.finish_reason == "stop"


def test_generation_ends_with_the_cache(session: Session) -> None:
    result = session.generate(tokens_of(98), max_new_tokens=50)
    assert (len(result.token_ids), result.finish_reason) == (3, "length")
    assert len(session.generate(tokens_of(100), max_new_tokens=50).token_ids) == 1


def test_cancel_ends_with_what_there_is(session: Session) -> None:
    stream = session.stream(tokens_of(3), max_new_tokens=90)
    first = next(stream)
    session.cancel()
    rest = list(stream)
    assert len(rest) < 80
    assert session.generate([*tokens_of(3), first.id], 4).finish_reason == "length"


def test_closing_a_stream_frees_the_session(session: Session) -> None:
    stream = session.stream(tokens_of(3), max_new_tokens=90)
    next(stream)
    with pytest.raises(UsageError, match="busy"):
        next(session.stream([1]))
    stream.close()  # type: ignore[attr-defined]
    assert len(session.generate([1], 2).token_ids) == 2


def test_closing_the_session_ends_a_running_stream(folder: Path) -> None:
    session = session_of(folder)
    stream = session.stream(tokens_of(3), max_new_tokens=90)
    next(stream)
    session.close()
    session.close()
    assert len(list(stream)) < 90
    with pytest.raises(UsageError, match="closed"):
        session.generate([1])
    with pytest.raises(UsageError, match="closed"):
        session.logits([1])


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        (lambda s: s.generate([]), "empty"),
        (lambda s: s.generate(""), "empty"),
        (lambda s: s.logits([]), "empty"),
        (lambda s: s.stream(tokens_of(101)), "101 tokens.*100"),
        (lambda s: s.logits(tokens_of(101)), "101 tokens.*100"),
        (lambda s: s.generate([1, 1003]), "1003 is out of range.*0 to 1002"),
        (lambda s: s.generate([-1]), "-1 is out of range"),
        (lambda s: s.stream([1], max_new_tokens=0), "max_new_tokens is 0"),
        (lambda s: s.generate([1], max_new_tokens=1.5), "max_new_tokens is 1.5"),
        (lambda s: s.generate("Hello"), "without a tokenizer"),
        (lambda s: s.generate([1], chat=True), "chat"),
    ],
)
def test_bad_requests_are_refused(session: Session, request_of: Callable[[Session], object], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        request_of(session)
    assert isinstance(caught.value, AmkError)
    assert "\n" not in str(caught.value)
