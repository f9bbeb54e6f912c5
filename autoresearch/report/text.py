"""The facts of a search as a few lines for a terminal."""

from __future__ import annotations

from typing import Any


def status_lines(facts: dict[str, Any]) -> list[str]:
    """The status for a person."""
    panel, headline = facts["panel_total"], facts["headline"]
    lines = [f"{facts['subject']} ({facts['mode']})"]
    lines.append(f"trials: {', '.join(f'{count} {verdict}' for verdict, count in facts['verdicts'].items()) or 'none'}")
    if panel["comparisons"]:
        kept = f"{panel['kept']} of {panel['comparisons']} comparisons kept"
        seen = f"{panel['pairs']} pairs in {panel['loads']} loads"
        lines.append(f"A/A: {kept} over {seen}, rate at most {panel['upper']:.1%}")
    if headline:
        interval = f"[{headline['least']:.4f}, {headline['most']:.4f}]"
        seen = f"{headline['pairs']} pairs in {headline['loads']} loads"
        lines.append(f"best: trial {headline['trial']}, {headline['factor']:.4f}x {interval}, {seen}")
    lines += [
        f"night {n['number']}: {n['hours']:.2f} h, {n['gpu_seconds']:.0f} GPU s; {n['reason']}" for n in facts["nights"]
    ]
    return lines
