"""Energy per token from samples of the GPU's energy counter, taken while it decodes without a pause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Sample:
    """The counter's `joules` when `tokens` had been decoded, at time `seconds`."""

    seconds: float
    joules: float
    tokens: int


@dataclass(frozen=True)
class Energy:
    """Joules per token and the mean power in watts."""

    joules_per_token: float
    watts: float


def energy_of(samples: Sequence[Sample]) -> Energy | None:
    """Energy between the first and the last change of the counter; None where it did not change twice.

    The counter is refreshed some ten times a second, so only the moments at which it changes are exact.
    """
    changes = [new for old, new in pairwise(samples) if new.joules != old.joules]
    if len(changes) < 2:
        return None
    first, last = changes[0], changes[-1]
    tokens, seconds = last.tokens - first.tokens, last.seconds - first.seconds
    if tokens <= 0 or seconds <= 0:
        return None
    joules = last.joules - first.joules
    return Energy(joules / tokens, joules / seconds)
