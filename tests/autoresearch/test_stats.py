"""The sequential test keeps its error rate however often one looks; pairs cancel drift; the A/A panel is honest."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest

from autoresearch.abba import Pair, below_floor, order_of, pair_of
from autoresearch.errors import ProposalError
from autoresearch.panel import judge_panel
from autoresearch.stats import Interval, Rule, interval, proportion_upper, spent_alpha
from autoresearch.workload import at_positions

POINTS = at_positions([0, 64], 128)


def normal(rng: random.Random) -> float:
    return rng.gauss(0.01, 0.003)


def spiky_times(rng: random.Random) -> float:
    """The log ratio of a pair whose times are skewed and now and then far off: symmetric, but with heavy tails."""

    def side() -> float:
        return 2 + sum(0.003 * rng.expovariate(1) + 0.05 * (rng.random() < 0.03) for _ in range(2))

    return 0.01 + math.log(side() / side())


@pytest.mark.parametrize("draw", [normal, spiky_times])
def test_coverage_with_a_look_after_every_pair(draw: Callable[[random.Random], float]) -> None:
    rng, misses, runs, alpha = random.Random(1), 0, 500, 0.1
    for _ in range(runs):
        values: list[float] = []
        for _ in range(48):
            values.append(draw(rng))
            seen = interval(values, alpha)
            if not seen.low <= 0.01 <= seen.high:
                misses += 1
                break
    assert misses / runs <= alpha


def test_interval_shrinks_and_needs_pairs() -> None:
    rng = random.Random(2)
    values = [rng.gauss(-0.02, 0.002) for _ in range(40)]
    widths = [interval(values[:n], 0.05).high - interval(values[:n], 0.05).low for n in (2, 6, 12, 40)]
    assert widths[0] == math.inf
    assert widths[1] > widths[2] > widths[3]
    assert interval([], 0.05) == Interval(-math.inf, math.inf, 0.0, 0, 0.05)
    assert interval(values, 0.05).factor == pytest.approx(1.02, abs=2e-3)


def test_shares_of_alpha_never_exceed_it() -> None:
    assert sum(spent_alpha(0.05, k) for k in range(1, 10_000)) <= 0.05
    assert spent_alpha(0.05, 1) == 0.025


@pytest.mark.parametrize(("gain", "decision"), [(-0.05, "faster"), (0.05, "slower"), (0.0, "slower")])
def test_decisions(gain: float, decision: str) -> None:
    rule, rng = Rule(0.01, 0.003, 4, 48), random.Random(3)
    values: list[float] = []
    while rule.decide(values) == "more":
        values.append(rng.gauss(gain, 0.002))
    assert rule.decide(values) == decision
    assert len(values) < 20


def test_no_difference_that_can_be_told() -> None:
    rule, rng = Rule(0.001, 0.0, 4, 12), random.Random(4)
    assert rule.decide([rng.gauss(0, 0.02) for _ in range(12)]) == "undecided"


def test_linear_drift_cancels_in_a_pair() -> None:
    # The GPU gets 1 % slower with every measurement, the candidate is 3 % slower.
    for order in ("ABBA", "BAAB"):
        factors = {"A": 1.0, "B": 1.03}
        samples = tuple((factors[who] * (1 + 0.01 * i),) * 2 for i, who in enumerate(order))
        ratio = Pair(order, samples, True, {}).log_ratio(POINTS)
        assert ratio == pytest.approx(math.log(1.03), abs=3e-4)


def test_orders_are_random_and_repeat_after_a_restart() -> None:
    orders = [order_of(7, 3, "screen/1", i) for i in range(40)]
    assert orders == [order_of(7, 3, "screen/1", i) for i in range(40)]
    assert 10 < orders.count("ABBA") < 30


@pytest.mark.parametrize(
    "samples",
    [
        None,
        [],
        [[1, 1]] * 3,
        [[1, 1]] * 3 + [[1]],
        [[1, 1]] * 3 + [[1, -1]],
        [[1, 1]] * 3 + [[1, True]],
        [[1, 1]] * 3 + [["1", 1]],
    ],
)
def test_times_that_are_none(samples: object) -> None:
    with pytest.raises(ProposalError):
        pair_of({"samples": samples}, "ABBA", 2)


def test_below_the_floor_is_an_error() -> None:
    assert below_floor([[1.0, 2.0]], [0.9, 1.9]) is None
    assert "below the floor" in str(below_floor([[1.0, 1.8]], [0.9, 1.9]))


def test_a_noisy_panel_of_200_pairs_keeps_nothing() -> None:
    rng = random.Random(5)
    panel = judge_panel([rng.gauss(0, 0.005) for _ in range(200)], Rule(0.05, 0.003, 4, 48), 12)
    assert (panel["pairs"], panel["comparisons"], panel["kept"], panel["kept_over_all_pairs"]) == (200, 16, 0, False)
    assert panel["kept_upper"] == pytest.approx(1 - 0.05 ** (1 / 16), abs=1e-6)


def test_a_biased_panel_shows() -> None:
    rng = random.Random(6)
    panel = judge_panel([rng.gauss(-0.02, 0.002) for _ in range(48)], Rule(0.05, 0.003, 4, 48), 12)
    assert panel["kept"] == 4


def test_upper_bound_of_a_rate() -> None:
    assert proportion_upper(0, 0) == proportion_upper(3, 3) == 1.0
    bounds = [proportion_upper(k, 20) for k in range(5)]
    assert all(a < b for a, b in itertools.pairwise(bounds))
    assert bounds[0] == pytest.approx(0.1391, abs=1e-4)
