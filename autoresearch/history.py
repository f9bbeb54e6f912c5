"""The journal folded: trials, their verdicts, the incumbent. The same events always give the same history."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from autoresearch.journal import Event
from autoresearch.loads import by_load

BASELINE = "baseline"
KEPT = "kept"
REJECTED = "rejected"
DUPLICATE = "duplicate"
QUARANTINED = "quarantined"
STRIKES = 2
"""Kills or crashes after which a candidate is never run again."""

LOST_RUNS = 5
"""Runs of one candidate in a row that neither got anywhere nor ended: then it takes down more than its worker."""


@dataclass
class Trial:
    """A candidate and how far it got."""

    number: int
    subject: str
    night: int
    spec: dict[str, Any]
    key: str
    proposer: str = ""
    parent: int | None = None
    why: str = ""
    content: str | None = None
    passed: dict[str, dict[str, Any]] = field(default_factory=dict)
    pairs: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    strikes: list[str] = field(default_factory=list)
    open_runs: int = 0
    gpu_seconds: float = 0.0
    verdict: str | None = None
    rung: str | None = None
    reason: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
    against: int | None = None
    log_ratio: float | None = None
    score: float | None = None
    ordinal: int | None = None

    @property
    def setting(self) -> dict[str, int] | None:
        """The knobs, unless a whole Program was submitted."""
        return self.spec.get("knobs")

    @property
    def dead(self) -> bool:
        """Whether it never ran to a measurement: nothing is to be had in this direction."""
        return self.verdict in (REJECTED, QUARANTINED) and self.log_ratio is None

    def loads(self, phase: str) -> list[list[float]]:
        """The log ratios of a phase that count, load by load."""
        return by_load(self.pairs.get(phase, {}))


@dataclass
class Night:
    """One run of the supervisor (restarts included)."""

    number: int
    subject: str
    settings: dict[str, Any]
    started: float
    elapsed: float = 0.0
    gpu_seconds: float = 0.0
    ended: dict[str, Any] | None = None
    agent_tokens: int = 0
    agent_money: float = 0.0
    panel: list[dict[str, Any]] = field(default_factory=list)
    recheck: dict[str, Any] | None = None
    headline: dict[str, Any] | None = None
    infrastructure: list[str] = field(default_factory=list)
    code: dict[str, Any] = field(default_factory=dict)


@dataclass
class History:
    """Everything that the journal says. `incumbents` maps a subject to its best trial."""

    trials: dict[int, Trial] = field(default_factory=dict)
    nights: dict[int, Night] = field(default_factory=dict)
    subjects: dict[str, dict[str, Any]] = field(default_factory=dict)
    incumbents: dict[str, int] = field(default_factory=dict)
    baselines: dict[str, int] = field(default_factory=dict)
    confirmations: dict[str, int] = field(default_factory=dict)
    lineage: dict[str, list[int]] = field(default_factory=dict)
    panels: dict[tuple[int, str], dict[int, dict[str, Any]]] = field(default_factory=dict)
    workers: dict[int, dict[str, Any]] = field(default_factory=dict)
    contents: dict[tuple[str, str], int] = field(default_factory=dict)
    schema_refusals: list[str] = field(default_factory=list)
    last_seq: int = 0

    def of(self, subject: str) -> list[Trial]:
        """The trials of a subject, in order."""
        return [trial for trial in self.trials.values() if trial.subject == subject]

    def unfinished(self, subject: str) -> list[Trial]:
        """Trials without a verdict."""
        return [trial for trial in self.of(subject) if trial.verdict is None]

    def by_key(self, subject: str, key: str) -> Trial | None:
        """The trial that submitted this before."""
        return next((trial for trial in self.of(subject) if trial.key == key), None)

    def by_content(self, subject: str, content: str) -> Trial | None:
        """The trial that had these tables first."""
        number = self.contents.get((subject, content))
        return None if number is None else self.trials[number]

    def incumbent(self, subject: str) -> Trial | None:
        """The best trial so far, which new ones are compared with."""
        number = self.incumbents.get(subject)
        return None if number is None else self.trials[number]

    @property
    def next_trial(self) -> int:
        """Number of the next trial."""
        return max(self.trials, default=0) + 1


def fold(events: Iterable[Event], history: History | None = None) -> History:
    """Add events to a history (a new one by default)."""
    history = history or History()
    for event in events:
        handler = _HANDLERS.get(event.kind)
        if event.night in history.nights:
            night = history.nights[event.night]
            night.elapsed = max(night.elapsed, event.elapsed)
        if handler is not None:
            handler(history, event)
        history.last_seq = event.seq
    return history


def _night(history: History, event: Event) -> None:
    history.subjects.setdefault(event.subject, event.body["subject"])
    made = Night(event.night, event.subject, event.body["settings"], event.wall, code=event.body.get("code", {}))
    history.nights[event.night] = made


def _night_end(history: History, event: Event) -> None:
    history.nights[event.night].ended = event.body


def _proposed(history: History, event: Event) -> None:
    assert event.trial is not None
    assert event.key is not None
    body = event.body
    history.trials[event.trial] = Trial(
        event.trial, event.subject, event.night, body["spec"], event.key, body["proposer"], body.get("parent"),
        body.get("why", ""),
    )  # fmt: skip


def _content(history: History, event: Event) -> None:
    trial = _trial(history, event)
    trial.content = event.key
    history.contents.setdefault((event.subject, str(event.key)), trial.number)


def _passed(history: History, event: Event) -> None:
    trial = _trial(history, event)
    trial.passed[str(event.phase)] = event.body
    trial.open_runs = 0
    if event.phase == "full gates" and event.subject in history.baselines:
        history.confirmations[event.subject] = history.confirmations.get(event.subject, 0) + 1
        trial.ordinal = history.confirmations[event.subject]


def _pair(history: History, event: Event) -> None:
    phase = str(event.phase)
    if event.trial is None or event.trial <= 0:
        history.panels.setdefault((event.night, phase), {})[event.idx or 0] = event.body
    else:
        trial = _trial(history, event)
        trial.pairs.setdefault(phase, {})[event.idx or 0] = event.body
        trial.open_runs = 0


def _run_start(history: History, event: Event) -> None:
    history.workers[int(event.body["pid"])] = event.body
    if event.trial in history.trials:
        _trial(history, event).open_runs += 1


def _run_end(history: History, event: Event) -> None:
    history.workers.pop(int(event.body["pid"]), None)
    if event.trial in history.trials:
        trial = _trial(history, event)
        trial.open_runs = max(0, trial.open_runs - 1)


def _turn(history: History, event: Event) -> None:
    seconds = float(event.body["gpu_seconds"])
    history.nights[event.night].gpu_seconds += seconds
    if event.trial in history.trials:
        _trial(history, event).gpu_seconds += seconds


def _strike(history: History, event: Event) -> None:
    _trial(history, event).strikes.append(str(event.body["reason"]))


def _verdict(history: History, event: Event) -> None:
    trial, body = _trial(history, event), event.body
    trial.verdict, trial.rung, trial.reason = body["verdict"], body.get("rung"), body.get("reason", "")
    trial.detail, trial.against, trial.log_ratio = body, body.get("against"), body.get("log_ratio")
    if trial.verdict == BASELINE:
        trial.score = 0.0
        history.baselines[event.subject] = trial.number
        _promote(history, event.subject, trial.number)
    elif trial.log_ratio is not None and trial.against is not None:
        trial.score = (history.trials[trial.against].score or 0.0) + trial.log_ratio
    if trial.verdict == KEPT:
        _promote(history, event.subject, trial.number)


def _promote(history: History, subject: str, number: int) -> None:
    history.incumbents[subject] = number
    history.lineage.setdefault(subject, []).append(number)


def _demoted(history: History, event: Event) -> None:
    history.incumbents[event.subject] = int(event.body["to"])
    history.lineage.setdefault(event.subject, []).append(int(event.body["to"]))


def _panel(history: History, event: Event) -> None:
    history.nights[event.night].panel.append(event.body)


def _recheck(history: History, event: Event) -> None:
    history.nights[event.night].recheck = event.body


def _headline(history: History, event: Event) -> None:
    history.nights[event.night].headline = event.body


def _agent(history: History, event: Event) -> None:
    night = history.nights[event.night]
    night.agent_tokens += int(event.body.get("tokens", 0))
    night.agent_money += float(event.body.get("money", 0.0))


def _infrastructure(history: History, event: Event) -> None:
    history.nights[event.night].infrastructure.append(str(event.body.get("reason", "")))


def _refused(history: History, event: Event) -> None:
    history.schema_refusals.append(str(event.body["reason"]))


def _trial(history: History, event: Event) -> Trial:
    assert event.trial is not None
    return history.trials[event.trial]


_HANDLERS = {
    "night": _night,
    "night_end": _night_end,
    "proposed": _proposed,
    "content": _content,
    "passed": _passed,
    "pair": _pair,
    "run_start": _run_start,
    "run_end": _run_end,
    "turn": _turn,
    "strike": _strike,
    "verdict": _verdict,
    "demoted": _demoted,
    "panel": _panel,
    "recheck": _recheck,
    "headline": _headline,
    "agent": _agent,
    "infrastructure": _infrastructure,
    "refused": _refused,
}


def factor(log_ratio: float) -> float:
    """How many times as fast."""
    return math.exp(-log_ratio)
