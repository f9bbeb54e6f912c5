"""Comparisons that judge the search itself: A/A, the winner against the default, and an old winner once more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from autoresearch.errors import InfrastructureError
from autoresearch.history import STRIKES, Trial
from autoresearch.link import RefusedError, Worker, WorkerLostError
from autoresearch.measure import Comparison, enough
from autoresearch.runs import Runs
from autoresearch.stats import Loads, Rule, interval, least_loads, proportion_upper, spread

PANEL = "aa"
T = TypeVar("T")


def guarded(runs: Runs, what: str, work: Callable[[], T]) -> T:
    """Do it, once more if its worker is lost. Raises InfrastructureError: what fails here was passed before."""
    for _ in range(STRIKES):
        try:
            return work()
        except WorkerLostError as lost:
            reason = str(lost)
            runs.check_device()
        except RefusedError as refusal:
            raise InfrastructureError(f"{what}: {refusal.reason}; look at it with amk research replay") from refusal
    raise InfrastructureError(f"{what} lost {STRIKES} workers ({reason}); check the GPU with amk doctor, then resume")


def run_panel(runs: Runs, incumbent: Trial) -> dict[str, Any]:
    """Compare the incumbent with itself over `aa_loads` loads. What would have been kept is a false keep."""
    settings, number = runs.settings, -runs.study.journal.night
    guarded(runs, "the A/A panel", lambda: _measure_panel(runs, incumbent))
    window = max(settings.aa_window, least_loads(settings.alpha))  # fewer loads keep nothing, whatever they say
    result = judge_panel(runs.loads(number, PANEL), settings.confirmation(settings.alpha), window)
    runs.study.add("panel", {**result, "trial": incumbent.number, "mode": runs.subject.mode})
    return result


def _measure_panel(runs: Runs, incumbent: Trial) -> None:
    number, loads = -runs.study.journal.night, runs.settings.aa_loads
    if enough(runs, number, PANEL, loads):
        return
    with _facing(runs, incumbent, incumbent) as worker:
        Comparison(runs, worker, number, PANEL).measure(loads)


@contextmanager
def _facing(runs: Runs, candidate: Trial, incumbent: Trial) -> Iterator[Worker]:
    """A fresh worker that has the GPU, both sides lowered and compiled before."""
    with runs.worker(None, candidate.spec, incumbent.spec) as worker:
        worker.call("prepare", {"delays": False}, runs.settings.deadline("prepare"))
        with runs.turn(None, worker):
            yield worker


def judge_panel(loads: Loads, rule: Rule, window: int) -> dict[str, Any]:
    """Would any stretch of `window` loads, or all loads in one, have been kept at some point? Uncorrected alpha.

    `load_sd` and `pair_sd` say what the addresses of a load are worth, and what the noise of a pair.
    """
    windows = [loads[i : i + window] for i in range(0, len(loads) - window + 1, window)]
    kept = sum(ever_kept(part, rule) for part in windows)
    whole, sd = interval(loads, rule.alpha), spread(loads)
    return {
        "pairs": whole.pairs,
        "loads": whole.loads,
        "comparisons": len(windows),
        "kept": kept,
        "kept_upper": proportion_upper(kept, len(windows)),
        "kept_over_all_loads": ever_kept(loads, rule),
        "estimate": whole.estimate,
        "low": whole.low if math.isfinite(whole.low) else None,
        "high": whole.high if math.isfinite(whole.high) else None,
        "load_sd": sd.loads,
        "pair_sd": sd.pairs,
        "alpha": rule.alpha,
    }


def ever_kept(loads: Loads, rule: Rule) -> bool:
    """Whether the test, looking after every load, would have said "faster" before it said anything else."""
    for count in range(1, len(loads) + 1):
        decision = rule.decide(loads[:count])
        if decision != "more":
            return decision == "faster"
    return False


def compare_with_baseline(runs: Runs, winner: Trial, baseline: Trial, phase: str) -> dict[str, Any]:
    """The winner against the default schedule in a fresh process: all loads, no early stop."""
    name, number = f"{phase}/{winner.number}", -runs.study.journal.night
    what = f"trial {winner.number} against the default schedule"
    facts = guarded(runs, what, lambda: _compare(runs, winner, baseline, name))
    before = guarded(runs, "the default schedule's timeline", lambda: _timeline_of(runs, baseline))
    seen = interval(runs.loads(number, name), runs.settings.alpha)
    if not math.isfinite(seen.low):
        raise InfrastructureError(f"{what}: {seen.loads} of its loads count, the others were throttled; cool the GPU")
    return {
        "trial": winner.number,
        "baseline": baseline.number,
        "log_ratio": seen.estimate,
        "low": seen.low,
        "high": seen.high,
        "pairs": seen.pairs,
        "loads": seen.loads,
        "alpha": runs.settings.alpha,
        "date": datetime.now(UTC).date().isoformat(),
        "energy": facts["energy"],
        "machine": facts["machine"],
        "timelines": {"before": before, "after": facts["timeline"]},
        "mode": runs.subject.mode,
    }


def _compare(runs: Runs, winner: Trial, baseline: Trial, name: str) -> dict[str, Any]:
    settings = runs.settings
    with _facing(runs, winner, baseline) as worker:
        Comparison(runs, worker, -runs.study.journal.night, name).measure(settings.headline_loads)
        return {
            "energy": worker.call("energy", {}, settings.deadline("energy")),
            "machine": worker.call("machine", {}, settings.deadline("probe")),
            "timeline": _timeline(runs, worker),
        }


def _timeline_of(runs: Runs, trial: Trial) -> dict[str, Any]:
    with _facing(runs, trial, trial) as worker:
        return _timeline(runs, worker)


def _timeline(runs: Runs, worker: Worker) -> dict[str, Any]:
    """Where the time goes at the last point; a timeline that cannot be had is no reason to lose a measurement."""
    pos = runs.subject.objective.points[-1].pos
    try:
        return worker.call("timeline", {"pos": pos}, runs.settings.deadline("timeline"))
    except (RefusedError, WorkerLostError) as error:
        return {"available": False, "reason": str(error)[:2000]}
