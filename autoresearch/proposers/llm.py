"""A language model behind an OpenAI-compatible endpoint. It may answer with edits of knobs, and with nothing else."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amk.errors import UsageError
from autoresearch.errors import ProposalError
from autoresearch.history import Trial, factor
from autoresearch.proposers.base import Proposal, Proposer, View, knobs
from autoresearch.space import Setting, Space

MAX_ANSWER_BYTES = 1 << 20
MAX_ATTEMPTS = 3
PAUSE_TURNS = 5
"""Turns that the fallback takes after MAX_ATTEMPTS answers that were none."""

SYSTEM = """You tune the schedule of one persistent CUDA kernel that decodes tokens. A schedule is a setting of knobs.
You are given the knobs, the best setting so far, what earlier edits did (measured factors: above 1 is faster), why
candidates were refused, and where the time goes. Answer with one JSON object and nothing else:
{"edits": [{"knob": NAME, "value": VALUE}, ...], "why": "one sentence"}
The edits apply to the best setting. Every value must be one of the knob's values. Do not repeat a setting."""


@dataclass(frozen=True)
class Endpoint:
    """`url` ends before /chat/completions. The key is read from the environment variable `key_variable` when used.

    Prices are per million tokens, in whatever currency the budget is in.
    """

    url: str
    model: str
    key_variable: str = "OPENAI_API_KEY"
    timeout: float = 120.0
    price_in: float = 0.0
    price_out: float = 0.0


class EndpointError(Exception):
    """The endpoint did not answer, or not with a completion. Never holds the key."""


@dataclass(frozen=True)
class Answer:
    """A completion and what it cost."""

    text: str
    tokens: int
    money: float


class LanguageModel:
    """Asks the endpoint while its budget lasts; otherwise, and after answers that are none, `fallback` proposes.

    `note` writes an event (tokens and money of every call); `exhausted` says whether the agent's budget is used up;
    `timeline` is where the time of the best schedule goes.
    """

    name = "llm"

    def __init__(
        self, endpoint: Endpoint, fallback: Proposer, note: Callable[[dict[str, Any]], None],
        exhausted: Callable[[], str | None], timeline: Callable[[], dict[str, Any]] = dict,
    ) -> None:  # fmt: skip
        self._endpoint, self._fallback, self._note = endpoint, fallback, note
        self._exhausted, self._timeline, self._pause = exhausted, timeline, 0

    def propose(self, view: View) -> Proposal | None:
        """The model's proposal, or the fallback's."""
        if self._pause > 0 or self._exhausted() is not None:
            self._pause -= 1
            return self._fallback.propose(view)
        number, setting = view.incumbent
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self._question(view, setting)}]
        for _ in range(MAX_ATTEMPTS):
            if self._exhausted() is not None:
                break
            try:
                answer = self._ask(messages)
                changed, why = parse_edits(answer.text, view.space, setting)
                if view.values(changed) in view.tried():
                    raise ProposalError("this setting was tried before")
                return Proposal(knobs(changed), number, f"llm: {why}")
            except EndpointError as error:
                self._note({"outcome": str(error)[:500]})
                break
            except ProposalError as error:
                self._note({"outcome": f"no proposal: {error}"[:500]})
                refusal = f"Refused: {error}. Answer with the JSON object only."
                messages += [{"role": "assistant", "content": answer.text[:4000]}, {"role": "user", "content": refusal}]
        self._pause = PAUSE_TURNS
        return self._fallback.propose(view)

    def learn(self, trial: Trial) -> None:
        """The journal has it; the next question tells the model."""
        self._fallback.learn(trial)

    def close(self) -> None:
        """Nothing is held."""
        self._fallback.close()

    def _question(self, view: View, setting: Setting) -> str:
        recent = [_brief(trial) for trial in view.trials[-20:] if trial.verdict is not None]
        return json.dumps(
            {
                "knobs": view.space.describe(),
                "best_setting": setting,
                "lessons": [lesson.to_json() for lesson in view.lessons[:30]],
                "recent_trials": recent,
                "timeline_of_best": self._timeline(),
            }
        )

    def _ask(self, messages: list[dict[str, str]]) -> Answer:
        endpoint = self._endpoint
        body = post(endpoint, {"model": endpoint.model, "messages": messages, "temperature": 0.7})
        answer = read_completion(body, endpoint, messages)
        self._note({"tokens": answer.tokens, "money": answer.money, "model": endpoint.model, "outcome": "answered"})
        return answer


def _brief(trial: Trial) -> dict[str, Any]:
    measured = None if trial.log_ratio is None else round(factor(trial.log_ratio), 4)
    witness = str(trial.detail.get("witness", ""))[:600]
    return {"setting": trial.setting, "verdict": trial.verdict, "rung": trial.rung, "reason": trial.reason[:300],
            "factor": measured, "witness": witness}  # fmt: skip


def post(endpoint: Endpoint, body: dict[str, Any]) -> bytes:
    """The answer's bytes: bounded in size and in time altogether, no redirects. Raises EndpointError."""
    import httpx

    until = time.monotonic() + endpoint.timeout
    url = endpoint.url.rstrip("/") + "/chat/completions"
    try:
        with (
            httpx.Client(timeout=endpoint.timeout, follow_redirects=False) as client,
            client.stream("POST", url, json=body, headers=_headers(endpoint)) as response,
        ):
            if response.status_code != httpx.codes.OK:
                raise EndpointError(f"HTTP status {response.status_code}")
            data = b""
            for chunk in response.iter_bytes():
                data += chunk
                if len(data) > MAX_ANSWER_BYTES:
                    raise EndpointError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
                if time.monotonic() > until:
                    raise EndpointError(f"no whole answer within {endpoint.timeout:g} s")
            return data
    except httpx.TimeoutException:
        raise EndpointError(f"no answer within {endpoint.timeout:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise EndpointError(f"cannot be reached ({type(error).__name__})") from None


def _headers(endpoint: Endpoint) -> dict[str, str]:
    key = os.environ.get(endpoint.key_variable, "")
    return {"Authorization": f"Bearer {key}"} if key else {}


def read_completion(body: bytes, endpoint: Endpoint, messages: list[dict[str, str]]) -> Answer:
    """The text of a chat completion and its cost; where no usage is given, a token is taken to be three characters."""
    try:
        data = json.loads(body)
        text = data["choices"][0]["message"]["content"]
        if not isinstance(text, str):
            raise TypeError("content is no text")
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise EndpointError(f"not a chat completion ({type(error).__name__})") from None
    usage = data.get("usage") if isinstance(data.get("usage"), dict) else {}
    asked = _count(usage.get("prompt_tokens"), sum(len(m["content"]) for m in messages) // 3)
    told = _count(usage.get("completion_tokens"), len(text) // 3)
    return Answer(text, asked + told, (asked * endpoint.price_in + told * endpoint.price_out) / 1e6)


def _count(value: Any, otherwise: int) -> int:
    """A token count, if it is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise


def parse_edits(text: str, space: Space, base: Setting) -> tuple[Setting, str]:
    """(setting, why) of an answer. Raises ProposalError for anything but the object that was asked for."""
    try:
        data = json.loads(_unfenced(text))
    except (ValueError, RecursionError):
        raise ProposalError("the answer is not one JSON object") from None
    if not isinstance(data, dict) or not set(data) <= {"edits", "why"} or not isinstance(data.get("edits"), list):
        raise ProposalError('the answer is not {"edits": [..], "why": ".."}')
    changes: dict[str, Any] = {}
    for edit in data["edits"][: len(space.knobs)]:
        if not isinstance(edit, dict) or set(edit) != {"knob", "value"} or not isinstance(edit["knob"], str):
            raise ProposalError('an edit is {"knob": NAME, "value": VALUE}')
        changes[edit["knob"]] = edit["value"]
    if not changes:
        raise ProposalError("there are no edits")
    why = data.get("why", "")
    return space.complete(changes, base), why[:300] if isinstance(why, str) else ""


def _unfenced(text: str) -> str:
    """The text inside a Markdown fence, which some models cannot leave out."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped.split("\n", 1)[1].rsplit("```", 1)[0]
    return stripped


def endpoint_of(url: str | None, model: str | None, key_variable: str, price_in: float, price_out: float) -> Endpoint:
    """The endpoint that the options name. Raises UsageError where one is missing."""
    if not url or not model:
        raise UsageError("--proposer llm needs --llm-url (ending before /chat/completions) and --llm-model")
    return Endpoint(url, model, key_variable, price_in=price_in, price_out=price_out)
