"""Facts -> HTML. Everything that came from outside is escaped; the page loads nothing."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from autoresearch.cache import write_whole
from autoresearch.report.facts import collect
from autoresearch.space import knob_space
from autoresearch.study import Study
from autoresearch.subject import Subject

WIDTH, HEIGHT = 860, 220


def write_report(study: Study, subject: Subject, path: Path | None = None) -> Path:
    """Write the page of a subject; where it is."""
    target = path or study.folder / "report.html"
    facts = collect(study.refresh(), subject, knob_space())
    write_whole(target, render(facts).encode())
    target.chmod(0o644)
    return target


def render(facts: dict[str, Any]) -> str:
    """The page."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(
        files("autoresearch.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    )
    return template.render(
        **facts, chart=factor_chart(facts["measured"]), panel_chart=ratio_chart(facts["panel_ratios"]),
        width=WIDTH, height=HEIGHT,
    )  # fmt: skip


def factor_chart(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Marks of the factor of every measured trial over what it was compared with, with its interval."""
    if not measured:
        return []
    shown = [_clipped(m) for m in measured]
    low, high = min(m["least"] for m in shown), max(m["most"] for m in shown)
    return [
        {
            "x": _scale(i, -1, len(shown), WIDTH),
            "y": HEIGHT - _scale(m["factor"], low, high, HEIGHT),
            "y_low": HEIGHT - _scale(m["least"], low, high, HEIGHT),
            "y_high": HEIGHT - _scale(m["most"], low, high, HEIGHT),
            "one": HEIGHT - _scale(1.0, low, high, HEIGHT),
            "kept": m["kept"],
            "label": f"trial {m['trial']}: {m['factor']:.4f}x",
        }
        for i, m in enumerate(shown)
    ]


def _clipped(mark: dict[str, Any]) -> dict[str, Any]:
    """Intervals that are not bounded yet, or very wide, end at 10 % from the estimate."""
    factor = mark["factor"]
    least = factor if mark["least"] is None else max(mark["least"], factor * 0.9)
    most = factor if mark["most"] is None else min(mark["most"], factor * 1.1)
    return {**mark, "least": min(least, 1.0), "most": max(most, 1.0), "factor": factor}


def ratio_chart(ratios: list[tuple[int, float]]) -> list[dict[str, Any]]:
    """Marks of the A/A pairs, each (load, log ratio), zero in the middle; every other load is pale."""
    if not ratios:
        return []
    most = max(abs(r) for _, r in ratios) or 1.0
    return [
        {
            "x": _scale(i, -1, len(ratios), WIDTH),
            "y": HEIGHT - _scale(r, -most, most, HEIGHT),
            "pale": load % 2 == 1,
            "label": f"pair {i + 1}, load {load + 1}: {math.expm1(r):+.3%}",
        }
        for i, (load, r) in enumerate(ratios)
    ]


def _scale(value: float, low: float, high: float, size: int) -> float:
    """`value` of [low, high] on [5 %, 95 %] of `size`."""
    share = (value - low) / (high - low) if high > low else 0.5
    return round(size * (0.05 + 0.9 * min(max(share, 0.0), 1.0)), 1)
