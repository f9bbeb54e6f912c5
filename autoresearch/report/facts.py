"""What the page shows, computed from the history: plain data, no markup."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from autoresearch.best import latest_headline
from autoresearch.history import BASELINE, KEPT, History, Trial, factor
from autoresearch.space import Space
from autoresearch.stats import proportion_upper
from autoresearch.subject import Subject


def collect(history: History, subject: Subject, space: Space) -> dict[str, Any]:
    """Everything on the page, for one subject."""
    key = subject.key
    trials = history.of(key)
    best = history.incumbent(key)
    nights = [night for night in history.nights.values() if night.subject == key]
    return {
        "subject": str(subject),
        "mode": subject.mode,
        "predicted": subject.mode == "predicted",
        "workload": subject.workload,
        "kernels_sha256": subject.kernels_sha256[:16],
        "headline": _headline(history, best),
        "best": None if best is None else best.spec,
        "best_trial": None if best is None else best.number,
        "lineage": [_step(history, number, space) for number in history.lineage.get(key, [])],
        "rejections": rejections(history, key),
        "verdicts": dict(Counter(trial.verdict or "unfinished" for trial in trials)),
        "panels": [{"night": night.number, **panel} for night in nights for panel in night.panel],
        "panel_total": panel_total(history, key),
        "panel_ratios": [(pair["load"], pair["log_ratio"]) for pair in _panel_pairs(history, key)],
        "nights": [_night(night) for night in nights],
        "timelines": _timelines(history, best),
        "clocks": clocks(history, key),
        "pareto": pareto(trials),
        "measured": [_measured(t) for t in trials if t.log_ratio is not None],
        "trials": [_row(history, trial, space) for trial in trials],
    }


def _headline(history: History, best: Trial | None) -> dict[str, Any] | None:
    found = latest_headline(history, best) if best is not None else None
    if found is None:
        return None
    return {**found, "factor": factor(found["log_ratio"]), "least": factor(found["high"]), "most": factor(found["low"])}


def _step(history: History, number: int, space: Space) -> dict[str, Any]:
    trial = history.trials[number]
    return {
        "trial": number,
        "what": "the default schedule" if trial.verdict == BASELINE else trial.why,
        "edits": edits_of(history, trial, space),
        "factor": None if trial.log_ratio is None else factor(trial.log_ratio),
        "reason": trial.reason,
    }


def edits_of(history: History, trial: Trial, space: Space) -> list[str]:
    """How a trial differs from what it was compared with, or grew from."""
    number = trial.against if trial.against is not None else trial.parent
    base = history.trials.get(number) if number is not None else None
    if base is None or base.setting is None or trial.setting is None:
        return []
    return [str(edit) for edit in space.edits(base.setting, trial.setting)]


def rejections(history: History, subject: str) -> list[tuple[str, int, str]]:
    """(rung, how many, an example) of what was not kept, the most first."""
    groups: dict[str, list[Trial]] = {}
    for trial in history.of(subject):
        if trial.verdict not in (None, KEPT, BASELINE):
            groups.setdefault(f"{trial.rung} ({trial.verdict})", []).append(trial)
    rows = [(rung, len(group), group[-1].reason) for rung, group in groups.items()]
    if history.schema_refusals:
        rows.append(("schema (refused)", len(history.schema_refusals), history.schema_refusals[-1]))
    return sorted(rows, key=lambda row: -row[1])


def panel_total(history: History, subject: str) -> dict[str, Any]:
    """A/A over all nights: comparisons, false keeps, and the upper bound of their rate."""
    panels = [panel for night in history.nights.values() if night.subject == subject for panel in night.panel]
    comparisons, kept = (sum(panel[name] for panel in panels) for name in ("comparisons", "kept"))
    return {
        "pairs": sum(panel["pairs"] for panel in panels),
        "loads": sum(panel["loads"] for panel in panels),
        "comparisons": comparisons,
        "kept": kept,
        "rate": kept / comparisons if comparisons else None,
        "upper": proportion_upper(kept, comparisons),
    }


def _panel_pairs(history: History, subject: str) -> list[dict[str, Any]]:
    return [
        pairs[index]
        for (night, phase), pairs in history.panels.items()
        if phase == "aa" and history.nights[night].subject == subject
        for index in sorted(pairs)
    ]


def _night(night: Any) -> dict[str, Any]:
    ended = night.ended or {}
    return {
        "number": night.number,
        "started": time.strftime("%Y-%m-%d %H:%M", time.localtime(night.started)),
        "hours": night.elapsed / 3600,
        "gpu_seconds": night.gpu_seconds,
        "tokens": night.agent_tokens,
        "money": night.agent_money,
        "proposer": night.settings.get("proposer"),
        "reason": ended.get("reason", "not ended"),
        "infrastructure": night.infrastructure,
    }


def _timelines(history: History, best: Trial | None) -> dict[str, Any]:
    found = latest_headline(history, best) if best is not None else None
    timelines: dict[str, Any] = (found or {}).get("timelines", {})
    return timelines


def clocks(history: History, subject: str) -> dict[str, Any]:
    """Range of each reading over all pairs, and how many pairs were spoiled."""
    pairs = [p for t in history.of(subject) for phase in t.pairs.values() for p in phase.values()]
    pairs += _panel_pairs(history, subject)
    readings = [reading for pair in pairs for reading in pair.get("clocks", {}).values()]
    ranges = {}
    for name in ("sm_mhz", "memory_mhz", "temperature_c"):
        values = [reading[name] for reading in readings if isinstance(reading.get(name), int | float)]
        if values:
            ranges[name] = (min(values), max(values))
    return {"pairs": len(pairs), "spoiled": sum(not pair["valid"] for pair in pairs), "ranges": ranges}


def pareto(trials: list[Trial]) -> list[dict[str, Any]]:
    """Trials with an energy reading that no other beats in both latency and energy."""
    points = []
    for trial in trials:
        joules = (trial.detail.get("energy") or {}).get("candidate")
        if joules is not None and trial.score is not None:
            points.append({"trial": trial.number, "factor": factor(trial.score), "joules": joules})
    return [p for p in points if not any(q["factor"] > p["factor"] and q["joules"] < p["joules"] for q in points)]


def _measured(trial: Trial) -> dict[str, Any]:
    low, high = trial.detail.get("low"), trial.detail.get("high")
    return {
        "trial": trial.number,
        "factor": factor(trial.log_ratio or 0.0),
        "least": None if high is None else factor(high),
        "most": None if low is None else factor(low),
        "kept": trial.verdict == KEPT,
    }


def _row(history: History, trial: Trial, space: Space) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "night": trial.night,
        "proposer": trial.proposer,
        "edits": edits_of(history, trial, space) or [trial.why],
        "verdict": trial.verdict or "unfinished",
        "rung": trial.rung or "",
        "reason": trial.reason,
    }
