"""Comparisons that judge the search itself: A/A, the winner against the default, and an old winner once more."""

from __future__ import annotations

from typing import Any

from autoresearch.history import Trial
from autoresearch.measure import add_pair, measure
from autoresearch.runs import Runs
from autoresearch.stats import Rule, interval, proportion_upper

PANEL = "aa"


def run_panel(runs: Runs, incumbent: Trial) -> dict[str, Any]:
    """Compare the incumbent with itself over `aa_pairs` pairs. What would have been kept is a false keep."""
    settings, number = runs.settings, -runs.study.journal.night
    if runs.pair_count(number, PANEL) < settings.aa_pairs:
        with runs.worker(None, incumbent.spec, incumbent.spec) as worker:
            floors = runs.floors(worker)
            for index in range(runs.pair_count(number, PANEL), settings.aa_pairs):
                add_pair(runs, worker, number, PANEL, index, floors)
    result = judge_panel(runs.ratios(number, PANEL), settings.confirmation(settings.alpha), settings.aa_window)
    runs.study.add("panel", {**result, "trial": incumbent.number, "mode": runs.subject.mode})
    return result


def judge_panel(ratios: list[float], rule: Rule, window: int) -> dict[str, Any]:
    """Would any stretch of `window` pairs, or all pairs in one, have been kept at some point? Uncorrected alpha."""
    windows = [ratios[i : i + window] for i in range(0, len(ratios) - window + 1, window)]
    kept = sum(ever_kept(part, rule) for part in windows)
    whole = interval(ratios, rule.alpha)
    return {
        "pairs": len(ratios),
        "comparisons": len(windows),
        "kept": kept,
        "kept_upper": proportion_upper(kept, len(windows)),
        "kept_over_all_pairs": ever_kept(ratios, rule),
        "estimate": whole.estimate,
        "low": whole.low if whole.pairs > 1 and whole.low > -1e9 else None,
        "high": whole.high if whole.pairs > 1 and whole.high < 1e9 else None,
        "alpha": rule.alpha,
    }


def ever_kept(ratios: list[float], rule: Rule) -> bool:
    """Whether the test, looking after every pair, would have said "faster" before it said anything else."""
    for count in range(1, len(ratios) + 1):
        decision = rule.decide(ratios[:count])
        if decision != "more":
            return decision == "faster"
    return False


def compare_with_baseline(runs: Runs, winner: Trial, baseline: Trial, phase: str) -> dict[str, Any]:
    """The winner against the default schedule in a fresh process: all pairs, no early stop."""
    settings, number = runs.settings, -runs.study.journal.night
    # A gain of nothing at alpha 0 is never decided, so the rule only counts pairs.
    rule = Rule(
        alpha=1e-300,
        min_gain=0.0,
        min_pairs=settings.headline_pairs,
        max_pairs=settings.headline_pairs,
        hopeless=1e-300,
    )
    name = f"{phase}/{winner.number}"
    with runs.worker(None, winner.spec, baseline.spec) as worker:
        measure(runs, worker, number, name, rule)
        joules = worker.call("energy", {}, settings.deadline("energy"))
        timelines = {"after": _timeline(runs, worker)}
    with runs.worker(None, baseline.spec, None) as worker:
        timelines["before"] = _timeline(runs, worker)
    seen = interval(runs.ratios(number, name), settings.alpha)
    return {
        "trial": winner.number,
        "baseline": baseline.number,
        "log_ratio": seen.estimate,
        "low": seen.low,
        "high": seen.high,
        "pairs": seen.pairs,
        "alpha": settings.alpha,
        "energy": joules,
        "timelines": timelines,
        "mode": runs.subject.mode,
    }


def _timeline(runs: Runs, worker: Any) -> dict[str, Any]:
    pos = runs.subject.objective.points[-1].pos
    answer: dict[str, Any] = worker.call("timeline", {"pos": pos}, runs.settings.deadline("timeline"))
    return answer
