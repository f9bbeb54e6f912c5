"""How a night is run: budgets, the rules of measurement, deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from amk.errors import UsageError
from autoresearch.stats import Rule

DEADLINES: Mapping[str, float] = {
    "begin": 120,
    "against": 420,
    "prepare": 240,
    "lower": 180,
    "validate": 600,
    "compile": 240,
    "smoke": 180,
    "gates": 900,
    "floors": 60,
    "block": 60,
    "energy": 60,
    "timeline": 120,
    "probe": 90,
}
"""Seconds that a worker has for each request."""


LEAST_HEADLINE_PAIRS = 10


def gate_seed(seed: int, night: int) -> int:
    """Fresh inputs for the gates every night, the same ones for all its candidates."""
    return 1000 * seed + night


@dataclass(frozen=True)
class Settings:
    """Of one night. `hours`, `trials`, `gpu_seconds`, `agent_tokens` and `agent_money` are budgets; None: no limit.

    `alpha` bounds the chance that anything kept in the whole search is no improvement of `min_gain`: twice what one
    schedule differed from itself by, loaded twice, in an A/A panel on an H200 (docs/research.md). `plateau` trials
    without an improvement end the night. `aa_pairs` compare the incumbent with itself. `ahead` candidates are on their
    way at once on this host: while one has the GPU the others are lowered, proved and compiled.
    """

    hours: float | None = None
    trials: int | None = None
    gpu_seconds: float | None = None
    agent_tokens: int | None = None
    agent_money: float | None = None
    plateau: int = 80
    proposer: str = "mixed"
    seed: int = 0
    alpha: float = 0.05
    min_gain: float = 0.01
    screen_alpha: float = 0.1
    screen_pairs: int = 16
    confirm_pairs: int = 48
    headline_pairs: int = 40
    aa_pairs: int = 24
    aa_window: int = 12
    min_pairs: int = 4
    deadline_scale: float = 1.0
    min_free_bytes: int = 1 << 30
    workers: int = 1
    ahead: int = 1
    learn_from: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """A night needs an end."""
        if self.hours is None and self.trials is None and self.gpu_seconds is None:
            raise UsageError("a search needs a budget: give --hours, --trials or --gpu-seconds")
        if self.headline_pairs < LEAST_HEADLINE_PAIRS:
            raise UsageError(f"headline_pairs {self.headline_pairs}: an interval needs {LEAST_HEADLINE_PAIRS} or more")

    def deadline(self, method: str) -> float:
        """Seconds for a request."""
        return DEADLINES[method] * self.deadline_scale

    @property
    def screening(self) -> Rule:
        """The cheap look: what it lets through is measured again."""
        return Rule(self.screen_alpha, self.min_gain, self.min_pairs, self.screen_pairs)

    def confirmation(self, alpha: float) -> Rule:
        """The look that counts, in a fresh process, at this candidate's share of alpha."""
        return Rule(alpha, self.min_gain, self.min_pairs, self.confirm_pairs)

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def settings_from_json(data: Mapping[str, Any]) -> Settings:
    """The settings of `to_json`."""
    return Settings(**{**data, "learn_from": tuple(data.get("learn_from", ()))})
