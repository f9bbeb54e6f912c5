"""How a night is run: budgets, the rules of measurement, deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from amk.errors import UsageError
from autoresearch.stats import Rule, least_loads

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
    "load": 300,
    "block": 60,
    "energy": 60,
    "timeline": 120,
    "probe": 90,
}
"""Seconds that a worker has for each request."""


def gate_seed(seed: int, night: int) -> int:
    """Fresh inputs for the gates every night, the same ones for all its candidates."""
    return 1000 * seed + night


@dataclass(frozen=True)
class Settings:
    """Of one night. `hours`, `trials`, `gpu_seconds`, `agent_tokens` and `agent_money` are budgets; None: no limit.

    `alpha` bounds the chance that anything kept in the whole search is no improvement of `min_gain`. Both sides are
    loaded anew every `pairs_per_load` pairs, and what is counted is loads: `screen_loads` and `confirm_loads` at most,
    `headline_loads` and `aa_loads` exactly. `aa_loads` compare the incumbent with itself, `aa_window` at a time.
    `plateau` trials without an improvement end the night. `ahead` candidates are on their way at once on this host:
    while one has the GPU the others are lowered, proved and compiled.

    The screening loads anew as well. It is a cheap look, but a final one for what it refuses: within one load, the
    addresses would refuse many candidates that gain somewhat more than `min_gain` for good, and let pass as many that
    gain less, each of which costs a second process. What is clearly slower is gone after three loads.
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
    min_gain: float = 0.005
    """The smallest gain worth keeping, as a fraction of the latency: about what one load of a schedule differs from the
    next by (0.46 %, docs/research.md), and a user loads once. It guards against no error: `alpha` does that, also at 0.
    """

    pairs_per_load: int = 2
    """The mean of a load has the variance t^2 + s^2 / m, for the sd t of loads, s of pairs in a load, and m pairs.

    On small models, where both sides are loaded and warm in about 0.6 s and a pair takes 0.15 s, one pair a load tells
    most per second if t is 0.46 % and s 0.1 to 0.3 %; three to five if t is a quarter of that. Two are within 25 % of
    the best in either case, leave a load its mean when one pair was throttled, and let the A/A panel tell t from s.
    Models that take seconds to load want more (`benchmarks/loads.py`).
    """

    screen_alpha: float = 0.1
    screen_loads: int = 16
    confirm_loads: int = 32
    headline_loads: int = 20
    aa_loads: int = 24
    aa_window: int = 12
    deadline_scale: float = 1.0
    min_free_bytes: int = 1 << 30
    workers: int = 1
    ahead: int = 1
    learn_from: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """A night needs an end."""
        if self.hours is None and self.trials is None and self.gpu_seconds is None:
            raise UsageError("a search needs a budget: give --hours, --trials or --gpu-seconds")
        if self.pairs_per_load < 1:
            raise UsageError(f"pairs_per_load {self.pairs_per_load}: a load needs a pair")
        if self.headline_loads < (least := least_loads(self.alpha)):
            raise UsageError(f"headline_loads {self.headline_loads}: alpha {self.alpha:g} needs {least} or more")

    def deadline(self, method: str) -> float:
        """Seconds for a request."""
        return DEADLINES[method] * self.deadline_scale

    @property
    def screening(self) -> Rule:
        """The cheap look: what it lets through is measured again."""
        return Rule(self.screen_alpha, self.min_gain, self.screen_loads)

    def confirmation(self, alpha: float) -> Rule:
        """The look that counts, in a fresh process, at this candidate's share of alpha."""
        return Rule(alpha, self.min_gain, self.confirm_loads)

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def settings_from_json(data: Mapping[str, Any]) -> Settings:
    """The settings of `to_json`."""
    return Settings(**{**data, "learn_from": tuple(data.get("learn_from", ()))})
