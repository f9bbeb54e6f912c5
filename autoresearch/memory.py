"""What earlier nights teach: which edits did what, under which conditions, and which settings won elsewhere.

Lessons order what is tried; they decide nothing. A setting that won elsewhere is a proposal like any other here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from autoresearch.history import KEPT, History, Trial
from autoresearch.space import Setting, Space


@dataclass(frozen=True)
class Transition:
    """An edit of one knob and what was seen: the log ratio, or the rung that refused it. `where` is the subject."""

    knob: str
    before: int
    after: int
    log_ratio: float | None
    refused: str | None
    where: str


@dataclass(frozen=True)
class Lesson:
    """What moving a knob from one value to another did, over `seen` trials of which `refused` never ran."""

    knob: str
    before: int
    after: int
    seen: int
    refused: int
    median_log_ratio: float | None
    where: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def transitions(history: History, space: Space) -> list[Transition]:
    """Every trial that differs from what it was compared with (or its parent) in one knob."""
    found = []
    for trial in history.trials.values():
        base = _base(history, trial)
        if base is None or trial.setting is None or trial.verdict is None:
            continue
        edits = space.edits(base, trial.setting)
        if len(edits) == 1:
            edit, refused = edits[0], trial.rung if trial.log_ratio is None else None
            found.append(
                Transition(
                    edit.knob, edit.before, edit.after, trial.log_ratio, refused, context(history, trial.subject)
                )
            )
    return found


def _base(history: History, trial: Trial) -> Setting | None:
    number = trial.against if trial.against is not None else trial.parent
    base = history.trials.get(number) if number is not None else None
    return dict(base.setting) if base is not None and base.setting is not None else None


def context(history: History, subject: str) -> str:
    """The conditions of a subject, in words."""
    data = history.subjects.get(subject, {})
    name = str(data.get("model", "?")).rsplit("/", 1)[-1]
    target = data.get("target", {}).get("name", "?")
    return f"{name}, {target}, {data.get('max_seq', '?')} tokens, {data.get('mode', '?')}"


def lessons(histories: Iterable[History], space: Space) -> list[Lesson]:
    """Transitions grouped by edit, the most helpful first."""
    groups: dict[tuple[str, int, int], list[Transition]] = defaultdict(list)
    for history in histories:
        for seen in transitions(history, space):
            groups[seen.knob, seen.before, seen.after].append(seen)
    result = [_lesson(key, group) for key, group in groups.items()]
    return sorted(
        result, key=lambda lesson: lesson.median_log_ratio if lesson.median_log_ratio is not None else math.inf
    )


def _lesson(key: tuple[str, int, int], group: list[Transition]) -> Lesson:
    ratios = [seen.log_ratio for seen in group if seen.log_ratio is not None]
    refused = sum(seen.refused is not None for seen in group)
    where = tuple(sorted({seen.where for seen in group}))
    return Lesson(*key, len(group), refused, median(ratios) if ratios else None, where)


def warm_starts(histories: Iterable[History], subject: str, space: Space) -> list[Setting]:
    """Settings kept on other subjects, the latest of each first: to be proposed, and measured, here."""
    settings: list[Setting] = []
    for history in histories:
        for other, lineage in history.lineage.items():
            if other == subject:
                continue
            kept = [t for t in map(history.trials.__getitem__, reversed(lineage)) if t.verdict == KEPT]
            settings += [space.known(t.setting) for t in kept[:2] if t.setting is not None]
    unique = {tuple(sorted(setting.items())): setting for setting in settings}
    return list(unique.values())
