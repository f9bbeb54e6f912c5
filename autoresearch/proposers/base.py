"""What a proposer is: a function of the history and a seeded random generator, so that a restart proposes the same."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from autoresearch.history import History, Trial
from autoresearch.memory import Lesson
from autoresearch.space import Setting, Space


@dataclass(frozen=True)
class Proposal:
    """A candidate as submitted (not checked yet), the trial that it grew from, and why."""

    spec: Mapping[str, Any]
    parent: int | None = None
    why: str = ""


@dataclass
class View:
    """What a proposer may know. `attempt` grows while its proposals were tried before."""

    space: Space
    history: History
    subject: str
    seed: int
    attempt: int = 0
    lessons: list[Lesson] = field(default_factory=list)
    warm: list[Setting] = field(default_factory=list)

    @property
    def rng(self) -> random.Random:
        """Random numbers of this trial and attempt."""
        return random.Random(f"{self.seed}/{self.history.next_trial}/{self.attempt}")

    @property
    def trials(self) -> list[Trial]:
        """The trials of the subject."""
        return self.history.of(self.subject)

    @property
    def incumbent(self) -> tuple[int | None, Setting]:
        """The trial to beat and its setting (the defaults where it is a whole Program)."""
        best = self.history.incumbent(self.subject)
        if best is None:
            return None, self.space.default
        return best.number, self.space.known(best.setting)

    def scored(self) -> list[tuple[float, int, Setting]]:
        """(log ratio to the default, trial, setting) of what was measured, the fastest first."""
        found = [
            (trial.score, trial.number, self.space.known(trial.setting))
            for trial in self.trials
            if trial.score is not None and trial.setting is not None
        ]
        return sorted(found, key=lambda entry: entry[:2])

    def tried(self) -> set[tuple[int, ...]]:
        """Settings that need no second trial, as their values in the order of the knobs."""
        return {self.values(t.setting) for t in self.trials if t.setting is not None}

    def values(self, setting: Mapping[str, int]) -> tuple[int, ...]:
        """The values of a setting in the order of the knobs."""
        return tuple(setting.get(knob.name, knob.default) for knob in self.space)


class Proposer(Protocol):
    """Proposes candidates, one at a time."""

    @property
    def name(self) -> str:
        """What the journal calls it."""

    def propose(self, view: View) -> Proposal | None:
        """The next candidate, or None if it has no more."""

    def learn(self, trial: Trial) -> None:
        """Hear the verdict on its own candidate."""

    def close(self) -> None:
        """Let go of what it holds."""


class Stateless:
    """A proposer that has everything from the history."""

    name = "stateless"

    def learn(self, trial: Trial) -> None:
        """The journal has it already."""

    def close(self) -> None:
        """Nothing is held."""


def knobs(setting: Mapping[str, int]) -> dict[str, Any]:
    """A setting as a submission."""
    return {"knobs": dict(setting)}
