"""When a night is over."""

from __future__ import annotations

from collections.abc import Mapping

from autoresearch.history import BASELINE, KEPT, History, Night
from autoresearch.settings import Settings


def spent(history: History, night: Night, settings: Settings, elapsed: float) -> str | None:
    """Which budget is used up, or None. `elapsed` is by the journal's own clock: the wall clock may jump."""
    trials = trials_of(history, night)
    used: Mapping[str, tuple[float, float | None]] = {
        "hours": (elapsed / 3600, settings.hours),
        "trials": (trials, settings.trials),
        "GPU seconds": (night.gpu_seconds, settings.gpu_seconds),
    }
    for name, (amount, limit) in used.items():
        if limit is not None and amount >= limit:
            return f"budget of {limit:g} {name} used up"
    if since_last_keep(history, night) >= settings.plateau:
        return f"plateau: {settings.plateau} trials without an improvement"
    return None


def agent_spent(night: Night, settings: Settings) -> str | None:
    """Which budget of an agent is used up, or None."""
    if settings.agent_tokens is not None and night.agent_tokens >= settings.agent_tokens:
        return f"{night.agent_tokens} of {settings.agent_tokens} tokens used"
    if settings.agent_money is not None and night.agent_money >= settings.agent_money:
        return f"{night.agent_money:.4f} of {settings.agent_money:g} spent"
    return None


def trials_of(history: History, night: Night) -> int:
    """Trials proposed in this night, the default schedule not counted."""
    return sum(t.night == night.number and t.verdict != BASELINE for t in history.trials.values())


def since_last_keep(history: History, night: Night) -> int:
    """Finished trials of this night after its last improvement."""
    count = 0
    for trial in history.trials.values():
        if trial.night == night.number and trial.verdict not in (None, BASELINE):
            count = 0 if trial.verdict == KEPT else count + 1
    return count
