"""What an agent may ask: six calls, the same over JSON lines and MCP. It proposes; it never reports a latency."""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from autoresearch.errors import ProposalError
from autoresearch.history import Trial, factor
from autoresearch.link import RefusedError, WorkerLostError
from autoresearch.spec import spec_of
from autoresearch.supervisor import Supervisor

LAST = 10


class Desk:
    """Answers an agent. `prepare` runs once, before the first answer that needs a measured default schedule."""

    def __init__(self, supervisor: Supervisor, name: str, prepare: Callable[[], None] | None = None) -> None:
        self._supervisor, self._name, self._prepare = supervisor, name, prepare
        self._lock = threading.Lock()

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answer a call by name. Raises ProposalError for a call that does not exist or does not fit."""
        calls: dict[str, Callable[..., dict[str, Any]]] = {
            "describe_space": self.describe_space,
            "validate": self.validate,
            "submit": self.submit,
            "status": self.status,
            "best": self.best,
            "timeline": self.timeline,
        }
        if (handler := calls.get(method)) is None:
            raise ProposalError(
                f"no call {method!r}; there are describe_space, validate, submit, status, best, timeline"
            )
        try:
            inspect.signature(handler).bind(**params)
        except TypeError as error:
            raise ProposalError(f"{method}: {error}") from None
        return handler(**params)

    def describe_space(self) -> dict[str, Any]:
        """Every knob with its values, its default and what it changes; the objective; what earlier trials taught."""
        s = self._supervisor
        return {
            "subject": str(s.subject),
            "mode": s.subject.mode,
            "objective": {"minimise": "weighted ms per token", "points": s.subject.workload},
            "knobs": s.space.describe(),
            "candidate": {"knobs": {"NAME": "VALUE, the defaults for what is not named"}},
            "lessons": [lesson.to_json() for lesson in s.view().lessons[:40]],
        }

    def validate(self, candidate: Any) -> dict[str, Any]:
        """Whether a candidate lowers, is proved and compiles; if not, the rung, the reason and the witness."""
        s = self._supervisor
        try:
            spec = spec_of(candidate, s.space)
        except ProposalError as error:
            return {"ok": False, "rung": "schema", "reason": str(error)}
        with self._lock:
            try:
                with s.runs.worker(None, spec.to_json(), None) as worker:
                    for method in ("lower", "validate", "compile"):
                        worker.call(method, {}, s.settings.deadline(method))
            except RefusedError as refusal:
                return {"ok": False, "rung": refusal.rung, "reason": refusal.reason, "witness": refusal.witness}
            except WorkerLostError as lost:
                return {"ok": False, "rung": "isolation", "reason": str(lost)}
        return {"ok": True}

    def submit(self, candidate: Any, why: str = "") -> dict[str, Any]:
        """Send a candidate up the ladder and wait for the verdict, with the measured factor if it got that far."""
        s = self._supervisor
        with self._lock:
            self._prepared()
            if (over := s.over()) is not None:
                return {"ok": False, "rung": "budget", "reason": over}
            trial = s.submit(candidate, self._name, s.incumbent.number, str(why))
            if not isinstance(trial, Trial):
                return {"ok": False, "rung": "schema", "reason": trial}
            s.ladder.climb(trial)
            return describe_trial(trial)

    def status(self) -> dict[str, Any]:
        """What is left of the budgets, verdicts so far, the last trials."""
        s = self._supervisor
        trials = s.study.refresh().of(s.subject.key)
        return {
            "over": s.over(),
            "elapsed_seconds": round(s.study.journal.elapsed, 1),
            "budgets": {"hours": s.settings.hours, "trials": s.settings.trials, "gpu_seconds": s.settings.gpu_seconds},
            "verdicts": dict(Counter(f"{t.verdict} at {t.rung}" for t in trials if t.verdict)),
            "last": [describe_trial(trial) for trial in trials[-LAST:]],
        }

    def best(self, confirm: bool = False) -> dict[str, Any]:
        """The setting to beat and its factor over the default; with `confirm` measured directly, in a fresh process."""
        s = self._supervisor
        with self._lock:
            self._prepared()
            trial = s.incumbent
            told = {"trial": trial.number, "candidate": trial.spec, "mode": s.subject.mode,
                    "factor_over_default": factor(trial.score or 0.0)}  # fmt: skip
            if not confirm:
                return {**told, "note": "product of the confirmed steps; ask with confirm to measure it directly"}
            if s.is_default(trial):
                return {**told, "note": "this is the default schedule: nothing better was confirmed"}
            seen = s.headline(trial)
            return {**told, **_direct(seen)}

    def timeline(self, pos: int | None = None) -> dict[str, Any]:
        """Where a token's time goes in the best schedule: which lane waits, on which hand-off, how long."""
        s = self._supervisor
        where = s.subject.objective.points[-1].pos if pos is None else int(pos)
        with self._lock:
            self._prepared()
            try:
                with s.runs.worker(None, s.incumbent.spec, None) as worker, s.runs.turn(None, worker):
                    return worker.call("timeline", {"pos": where}, s.settings.deadline("timeline"))
            except (RefusedError, WorkerLostError) as error:
                return {"available": False, "reason": str(error)}

    def _prepared(self) -> None:
        """Run the prelude once."""
        prepare, self._prepare = self._prepare, None
        if prepare is not None:
            prepare()


def _direct(seen: dict[str, Any]) -> dict[str, Any]:
    """A direct comparison with the default as an agent sees it."""
    what = "an improvement" if seen["high"] < 0 else "no improvement that can be told"
    return {
        "factor_over_default": factor(seen["log_ratio"]),
        "interval": [factor(seen["high"]), factor(seen["low"])],
        "confidence": 1 - seen["alpha"],
        "pairs": seen["pairs"],
        "loads": seen["loads"],
        "note": f"{what}, {seen['mode']} directly against the default in a fresh process",
    }


def describe_trial(trial: Trial) -> dict[str, Any]:
    """A trial as an agent sees it."""
    told: dict[str, Any] = {
        "ok": trial.verdict == "kept",
        "trial": trial.number,
        "candidate": trial.spec if trial.setting is not None else "program",
        "verdict": trial.verdict,
        "rung": trial.rung,
        "reason": trial.reason,
    }
    if trial.log_ratio is not None:
        told["factor_over_incumbent"] = factor(trial.log_ratio)
        told["incumbent"] = trial.against
    if witness := trial.detail.get("witness"):
        told["witness"] = witness[:4000]
    return told
