"""A trial once more: the same candidate against what it was compared with, in a fresh process, on fresh loads."""

from __future__ import annotations

from typing import Any

from amk.errors import UsageError
from autoresearch.history import Trial, factor
from autoresearch.measure import Comparison
from autoresearch.panel import guarded
from autoresearch.runs import Runs
from autoresearch.stats import Loads, interval
from autoresearch.supervisor import Supervisor


def replay(supervisor: Supervisor, number: int, loads: int) -> dict[str, Any]:
    """Repeat a trial: what it said then, and what it says now. Its verdict stays as it is."""
    study, settings = supervisor.study, supervisor.settings
    trial = study.refresh().trials.get(number)
    if trial is None:
        raise UsageError(f"trial {number}: there are {', '.join(map(str, study.history.trials)) or 'none'}")
    against = study.history.trials.get(trial.against or study.history.baselines.get(trial.subject, number), trial)
    with study.exclusive():
        study.journal.begin_night(trial.subject, max(study.history.nights), study.history.nights[trial.night].elapsed)
        until = len(supervisor.runs.loads(-study.journal.night, f"replay/{number}")) + loads
        content, gates, measured = guarded(
            supervisor.runs, f"the replay of trial {number}", lambda: _again(supervisor.runs, trial, against, until)
        )
    seen = interval(measured, settings.alpha)
    return {
        "trial": number,
        "verdict": trial.verdict,
        "rung": trial.rung,
        "same_content": trial.content is None or content == trial.content,
        "factor_then": None if trial.log_ratio is None else factor(trial.log_ratio),
        "factor_now": seen.factor,
        "now": str(seen),
        "against": against.number,
        "gates": gates.get("gates", []),
        "mode": supervisor.subject.mode,
    }


def _again(runs: Runs, trial: Trial, against: Trial, until: int) -> tuple[str, dict[str, Any], Loads]:
    """(content, gates, log ratios by load): under a phase of their own, numbered on from earlier replays."""
    pseudo, phase, settings = -runs.study.journal.night, f"replay/{trial.number}", runs.settings
    with runs.worker(None, trial.spec, against.spec) as worker:
        content = worker.call("lower", {}, settings.deadline("lower"))["content"]
        worker.call("prepare", {"delays": False}, settings.deadline("prepare"))
        with runs.turn(None, worker):
            gates = worker.call("gates", {"full": False}, settings.deadline("gates"))
            Comparison(runs, worker, pseudo, phase).measure(until)
    return content, gates, runs.loads(pseudo, phase)
