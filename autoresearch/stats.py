"""An always-valid test of log ratios in clusters: look after every load, stop whenever you like, the error rate holds.

Pairs within one load share the addresses of that load, and with them an effect that no number of pairs averages out.
So a load counts as one observation, the mean of its pairs; loads are independent.

The confidence sequence inverts the t-test e-process with a N(0, 1) mixture over the standardised effect and the
right-Haar prior over the scale (Lai 1976; Hendriksen, de Heide, Grunwald 2021; Wang and Ramdas 2023). For n loads with
mean m and standard deviation s, and any true mean mu and scale, the chance that mu is ever outside is at most alpha:

    |m - mu| <= s * sqrt(u * (n - 1) / n),  u = (r - 1) / (1 - r / (1 + n)),  r = (sqrt(1 + n) / alpha) ** (2 / n)

and unbounded while r >= 1 + n. That is exact for normal loads. An effect of addresses may as well have two values, and
a few loads of equal sign would then look like certainty: so it is also unbounded while 2 ** (1 - n) > alpha, the chance
that n loads which are symmetric around mu all fall on one side of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count as count_from

MIN_SPREAD = 1e-5
"""Standard deviation assumed at least: timers are not exact, and a cost model repeats itself to the last bit."""

Loads = Sequence[Sequence[float]]
"""Log ratios of the pairs that count, load by load. A load without any is none."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval of the log ratio candidate / incumbent: below zero means faster."""

    low: float
    high: float
    estimate: float
    pairs: int
    loads: int
    alpha: float

    @property
    def factor(self) -> float:
        """How many times as fast the candidate is."""
        return math.exp(-self.estimate)

    def __str__(self) -> str:
        low, high = math.exp(-self.high), math.exp(-self.low)
        seen = f"{self.pairs} pairs in {self.loads} loads"
        return f"{self.factor:.4f}x [{low:.4f}, {high:.4f}] ({seen}, alpha {self.alpha:.2g})"


def interval(loads: Loads, alpha: float) -> Interval:
    """The confidence interval after these loads, valid however the number of loads came about."""
    means = _means(loads)
    count, pairs = len(means), sum(map(len, loads))
    mean = math.fsum(means) / count if count else 0.0
    radius = _radius(count, alpha)
    if radius < math.inf:
        radius *= max(math.sqrt(_variance(means)), MIN_SPREAD)
    return Interval(mean - radius, mean + radius, mean, pairs, count, alpha)


def _means(loads: Loads) -> list[float]:
    return [math.fsum(load) / len(load) for load in loads if load]


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)


def _radius(count: int, alpha: float) -> float:
    """Radius in standard deviations of loads."""
    if count < 2 or 2.0 ** (1 - count) > alpha:
        return math.inf
    ratio = math.exp(2 / count * (0.5 * math.log1p(count) - math.log(alpha)))
    if ratio >= 1 + count:
        return math.inf
    return math.sqrt((ratio - 1) / (1 - ratio / (1 + count)) * (count - 1) / count)


def least_loads(alpha: float) -> int:
    """From how many loads on an interval at `alpha` is bounded."""
    return next(count for count in count_from(2) if _radius(count, alpha) < math.inf)


@dataclass(frozen=True)
class Spread:
    """Standard deviations of the log ratio: of a load's effect, and of a pair within its load."""

    loads: float
    pairs: float


def spread(loads: Loads) -> Spread:
    """What loading anew moves, apart from the noise of pairs (by moments); zero where there is too little to tell."""
    full = [load for load in loads if load]
    freedom = sum(len(load) - 1 for load in full)
    within = math.fsum(_variance(load) * (len(load) - 1) for load in full if len(load) > 1) / max(1, freedom)
    if len(full) < 2:
        return Spread(0.0, math.sqrt(within))
    of_means = within * math.fsum(1 / len(load) for load in full) / len(full)
    return Spread(math.sqrt(max(0.0, _variance(_means(full)) - of_means)), math.sqrt(within))


def spent_alpha(alpha: float, number: int) -> float:
    """The share of `alpha` for the `number`-th candidate (from 1): they sum to at most `alpha` over any number."""
    return alpha / (number * (number + 1))


@dataclass(frozen=True)
class Rule:
    """When to stop measuring: keep if faster by `min_gain` for sure, drop if that is impossible, or at `max_loads`.

    `min_gain` is a fraction of the latency. `hopeless` drops sooner: the interval at 1 - hopeless excludes a gain. It
    costs no false keep, and, simulated, hardly a true one: sequences are wide where looks are few.
    """

    alpha: float
    min_gain: float
    max_loads: int
    hopeless: float = 0.4

    def decide(self, loads: Loads) -> str:
        """After whole loads, one of "faster", "slower", "undecided" (after `max_loads`) and "more"."""
        bar = math.log1p(-self.min_gain)
        seen = interval(loads, self.alpha)
        if seen.high < bar:
            return "faster"
        if interval(loads, self.hopeless).low > bar:
            return "slower"
        return "undecided" if seen.loads >= self.max_loads else "more"


def proportion_upper(kept: int, of: int, confidence: float = 0.95) -> float:
    """Upper bound of a rate of which `kept` in `of` were seen (Clopper-Pearson, by bisection)."""
    if of == 0 or kept >= of:
        return 1.0
    low, high = kept / of, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = math.fsum(math.comb(of, k) * middle**k * (1 - middle) ** (of - k) for k in range(kept + 1))
        low, high = (middle, high) if tail > 1 - confidence else (low, middle)
    return high
