"""What the supervisor and a worker say to each other: one JSON object a line, one answer to each request.

-> {"id": 3, "method": "block", "params": {"order": "ABBA"}}
<- {"id": 3, "ok": true, "result": {"samples": [[0.61], ..]}}
<- {"id": 3, "ok": false, "rung": "compile", "reason": "..", "witness": ".."}      the candidate is refused
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any, Protocol

MAX_LINE = 16 << 20


class RefusedError(Exception):
    """The worker is well and the candidate is not: the rung that it failed, why, and the witness."""

    def __init__(self, rung: str, reason: str, witness: str = "") -> None:
        super().__init__(reason)
        self.rung, self.reason, self.witness = rung, reason, witness


class WorkerLostError(Exception):
    """The worker is gone. `how` is one of deadline, crash, nonsense and disk; `detail` what was seen."""

    def __init__(self, how: str, detail: str) -> None:
        super().__init__(f"{how}: {detail}")
        self.how, self.detail = how, detail


class Worker(Protocol):
    """A disposable worker. After WorkerLostError nothing of it is left running."""

    @property
    def identity(self) -> dict[str, Any]:
        """What finds its process again: pid (0: not on this host) and start time."""

    def call(self, method: str, params: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Ask, and wait for at most `deadline` seconds. Raises RefusedError and WorkerLostError."""

    def close(self) -> None:
        """End the worker and everything it started."""


class Fleet(Protocol):
    """Where workers come from: this host, or a Ray cluster. `size` workers may run at once."""

    @property
    def size(self) -> int:
        """How many workers may run at once."""

    @property
    def one_device(self) -> bool:
        """Whether they share one GPU, so that only one of them may use it at a time."""

    def worker(self) -> AbstractContextManager[Worker]:
        """A fresh worker, closed on the way out."""


def parse_answer(line: bytes, request: int) -> dict[str, Any]:
    """The result in an answer. Raises RefusedError for a refusal and WorkerLostError for anything that is no answer."""
    try:
        answer = json.loads(line, parse_constant=_no_constant)
        if answer["id"] != request:
            raise ValueError(f"answer to {answer['id']!r}, not {request}")
        if answer["ok"] is True:
            result: dict[str, Any] = dict(answer["result"])
            return result
        refusal = RefusedError(str(answer["rung"]), str(answer["reason"]), str(answer.get("witness", "")))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise WorkerLostError("nonsense", f"{error!r:.200} in {line[:200]!r}") from None
    raise refusal


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of this protocol")
