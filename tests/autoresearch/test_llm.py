"""The language model proposer against a local stub: good, malformed, hostile, slow and dear answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from amk.errors import UsageError
from autoresearch.proposers.base import Proposal, Stateless, View
from autoresearch.proposers.llm import PAUSE_TURNS, Endpoint, LanguageModel, endpoint_of
from tests.autoresearch.helpers import SPACE
from tests.autoresearch.test_proposers import add, history_of_one, view

pytest.importorskip("httpx")
KEY = "sk-do-not-tell"
GOOD = json.dumps({"edits": [{"knob": "in_flight", "value": 4}], "why": "the queue is deep"})


class Stub(ThreadingHTTPServer):
    """Answers with what stands in `script`, one entry per request: text of a completion, raw bytes, or a number of
    seconds to dawdle."""

    script: list[Any]
    requests: list[dict[str, Any]]


class Handler(BaseHTTPRequestHandler):
    server: Stub

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        answer = self.server.script.pop(0)
        if isinstance(answer, tuple):
            self.reply(*answer)
        elif isinstance(answer, float):
            self.dawdle(answer)
        else:
            usage = {"prompt_tokens": 1000, "completion_tokens": 100}
            self.reply(200, json.dumps({"choices": [{"message": {"content": answer}}], "usage": usage}).encode())

    def reply(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Location", "http://elsewhere.invalid/")
        self.end_headers()
        self.wfile.write(data)

    def dawdle(self, seconds: float) -> None:
        """A byte now and then, for so long."""
        self.send_response(200)
        self.end_headers()
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                self.wfile.write(b" ")
                time.sleep(0.05)
        except OSError:
            pass

    def log_message(self, *_: Any) -> None:
        pass


class Fallback(Stateless):
    name = "fallback"

    def propose(self, _: View) -> Proposal | None:
        return Proposal({"knobs": {}}, None, "fallback")


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub(("127.0.0.1", 0), Handler)
    server.script, server.requests = [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


class Asker:
    """A proposer on the stub, with what it wrote down."""

    def __init__(self, stub: Stub, timeout: float = 5.0, exhausted: Any = lambda: None) -> None:
        self.notes: list[dict[str, Any]] = []
        endpoint = Endpoint(f"http://127.0.0.1:{stub.server_port}/v1", "some-model", "AMK_TEST_KEY", timeout, 2.0, 10.0)
        self.proposer = LanguageModel(endpoint, Fallback(), self.notes.append, exhausted, lambda: {"available": False})

    def propose(self) -> Proposal:
        proposal = self.proposer.propose(view(history_of_one()))
        assert proposal is not None
        return proposal


def test_a_good_answer(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMK_TEST_KEY", KEY)
    stub.script = [f"```json\n{GOOD}\n```"]
    asker = Asker(stub)
    proposal = asker.propose()
    assert proposal.spec == {"knobs": {**SPACE.default, "in_flight": 4}}
    assert (proposal.why, proposal.parent) == ("llm: the queue is deep", 1)
    (request,) = stub.requests
    assert (request["path"], request["key"], request["model"]) == (
        "/v1/chat/completions",
        f"Bearer {KEY}",
        "some-model",
    )
    question = json.loads(request["messages"][1]["content"])
    assert {"knobs", "best_setting", "lessons", "recent_trials", "timeline_of_best"} == set(question)
    assert asker.notes == [{"tokens": 1100, "money": 0.003, "model": "some-model", "outcome": "answered"}]
    assert KEY not in json.dumps([asker.notes, request["messages"], proposal.why])


def test_witnesses_and_lessons_are_told(stub: Stub) -> None:
    stub.script = [GOOD]
    history = history_of_one()
    add(
        history,
        {"down_split": 4},
        1,
        rung="validate",
        log_ratio=None,
        reason="rule 4",
        detail={"witness": "task 1, task 2"},
    )
    asker = Asker(stub)
    assert asker.proposer.propose(view(history)) is not None
    assert "task 1, task 2" in stub.requests[0]["messages"][1]["content"]


@pytest.mark.parametrize(
    "text",
    [
        "I would lower in_flight.",
        "[]",
        "{}",
        '{"edits": []}',
        '{"edits": [{"knob": "in_flight", "value": 4}], "cuda": "__global__ void k() {}"}',
        '{"edits": [{"knob": "in_flight", "value": "4; rm -rf /"}]}',
        '{"edits": [{"knob": "in_flight", "value": 4, "latency": 0.01}]}',
        '{"edits": [{"knob": ["in_flight"], "value": 4}]}',
        '{"edits": [{"knob": "__class__", "value": 4}]}',
        '{"edits": [{"knob": "in_flight", "value": 1e999}]}',
        json.dumps({"edits": [{"knob": "in_flight", "value": SPACE.default["in_flight"]}]}),  # what it was given
        '{"edits": ' + "[" * 100_000,
    ],
)
def test_malformed_and_hostile_answers_get_a_second_chance(text: str, stub: Stub) -> None:
    stub.script = [text, GOOD]
    asker = Asker(stub)
    assert asker.propose().why == "llm: the queue is deep"
    assert "Refused: " in stub.requests[1]["messages"][3]["content"]
    assert [note["outcome"].partition(":")[0] for note in asker.notes] == ["answered", "no proposal", "answered"]


def test_three_bad_answers_and_the_fallback_takes_over_for_a_while(stub: Stub) -> None:
    stub.script = ["no"] * 3 + [GOOD]
    asker = Asker(stub)
    assert [asker.propose().why for _ in range(PAUSE_TURNS + 2)] == ["fallback"] * (PAUSE_TURNS + 1) + [
        "llm: the queue is deep"
    ]
    assert sum(note.get("tokens", 0) for note in asker.notes) == 4 * 1100


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ((500, b"oops"), "HTTP status 500"),
        ((302, b""), "HTTP status 302"),
        ((200, b"<html>"), "not a chat completion"),
        ((200, b'{"choices": []}'), "not a chat completion"),
        ((200, b'{"choices": [{"message": {"content": null}}]}'), "not a chat completion"),
        ((200, b"x" * (2 << 20)), "more than"),
        (3.0, "no whole answer within 0.4 s"),
    ],
)
def test_endpoints_that_do_not_answer(answer: Any, outcome: str, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMK_TEST_KEY", KEY)
    stub.script = [answer]
    asker = Asker(stub, timeout=0.4)
    started = time.monotonic()
    assert asker.propose().why == "fallback"
    assert time.monotonic() - started < 2
    assert outcome in asker.notes[-1]["outcome"]
    assert KEY not in json.dumps(asker.notes)


def test_nobody_there(stub: Stub) -> None:
    asker = Asker(stub)
    stub.shutdown()
    stub.server_close()
    assert asker.propose().why == "fallback"
    assert "cannot be reached" in asker.notes[0]["outcome"]


def test_no_question_beyond_the_budget(stub: Stub) -> None:
    asker = Asker(stub, exhausted=lambda: "1100 of 1000 tokens used")
    assert asker.propose().why == "fallback"
    assert stub.requests == []


def test_lies_about_usage_cost_at_least_the_text(stub: Stub) -> None:
    lie = {"choices": [{"message": {"content": GOOD}}], "usage": {"prompt_tokens": -5, "completion_tokens": "none"}}
    stub.script = [(200, json.dumps(lie).encode())]
    asker = Asker(stub)
    asker.propose()
    assert asker.notes[0]["tokens"] > 500


def test_an_endpoint_needs_a_url_and_a_model() -> None:
    with pytest.raises(UsageError, match="--llm-url"):
        endpoint_of(None, "m", "K", 0, 0)
