"""The journal as JSON lines: one trial a line, with everything that a model could be trained on or rewarded by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from autoresearch.history import DUPLICATE, KEPT, QUARANTINED, History, Trial
from autoresearch.space import Space

RUNG_REWARDS = (
    "schema",
    "lower",
    "validate",
    "compile",
    "smoke",
    "gates",
    "floor",
    "screen",
    "proof",
    "full gates",
    "confirm",
)


def trial_lines(history: History, space: Space) -> Iterator[str]:
    """One JSON object per finished trial."""
    for trial in history.trials.values():
        if trial.verdict is not None:
            yield json.dumps(trial_record(history, trial, space), sort_keys=True)


def trial_record(history: History, trial: Trial, space: Space) -> dict[str, Any]:
    """A trial: subject, submission, edits, verdict, witness, regions touched, raw pairs with their loads, reward.

    `counted` is how many pairs and loads the interval is of.
    """
    subject = history.subjects[trial.subject]
    return {
        "trial": trial.number,
        "subject": subject,
        "mode": subject["mode"],
        "night": trial.night,
        "proposer": trial.proposer,
        "why": trial.why,
        "spec": trial.spec,
        "content": trial.content,
        "parent": trial.parent,
        "against": trial.against,
        "edits": _edits(history, trial, space),
        "regions": _regions(trial),
        "verdict": trial.verdict,
        "rung": trial.rung,
        "reason": trial.reason,
        "witness": trial.detail.get("witness", ""),
        "log_ratio": trial.log_ratio,
        "interval": [trial.detail.get("low"), trial.detail.get("high")],
        "counted": {name: trial.detail.get(name) for name in ("pairs", "loads")},
        "pairs": {phase: [pairs[i] for i in sorted(pairs)] for phase, pairs in trial.pairs.items()},
        "passed": sorted(trial.passed),
        "gpu_seconds": round(trial.gpu_seconds, 3),
        "reward": reward(trial),
    }


def _edits(history: History, trial: Trial, space: Space) -> list[dict[str, Any]]:
    number = trial.against if trial.against is not None else trial.parent
    base = history.trials.get(number) if number is not None else None
    if base is None or base.setting is None or trial.setting is None:
        return []
    edits = space.edits(base.setting, trial.setting)
    return [{"knob": e.knob, "before": e.before, "after": e.after} for e in edits]


def _regions(trial: Trial) -> dict[str, Any]:
    """Sizes of the schedule that the lowering arrived at."""
    config: dict[str, Any] = trial.passed.get("lower", {}).get("config", {})
    return config


def reward(trial: Trial) -> float:
    """Verifiable reward: -1 to 0 by the rung of a refusal, else the measured gain, doubled where it was confirmed."""
    if trial.log_ratio is not None:
        return -trial.log_ratio * (2.0 if trial.verdict == KEPT else 1.0)
    if trial.verdict in (DUPLICATE, "baseline"):
        return 0.0
    if trial.verdict == QUARANTINED or trial.rung not in RUNG_REWARDS:
        return -1.0
    return -1.0 + RUNG_REWARDS.index(trial.rung) / len(RUNG_REWARDS)


def event_lines(events: Any) -> Iterator[str]:
    """Every event as it was written."""
    for event in events:
        yield json.dumps(vars(event), sort_keys=True)
