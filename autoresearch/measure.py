"""Pairs until the sequential test has seen enough. Every pair is in the journal before the next one begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoresearch.abba import CANDIDATE, INCUMBENT, Pair, below_floor, order_of, pair_of
from autoresearch.errors import ProposalError
from autoresearch.link import RefusedError, Worker, WorkerLostError
from autoresearch.stats import Interval, Rule, interval

if TYPE_CHECKING:
    from autoresearch.runs import Runs

SPOILED = 3
"""At most this many times `max_pairs` are measured, those spoiled by throttling included."""


@dataclass(frozen=True)
class Measurement:
    """What the pairs of a phase say."""

    decision: str
    interval: Interval

    def to_json(self) -> dict[str, Any]:
        """As the fields of a verdict."""
        i = self.interval
        bounds = {"low": i.low, "high": i.high}
        finite = {name: value if math.isfinite(value) else None for name, value in bounds.items()}
        return {"log_ratio": i.estimate, **finite, "pairs": i.pairs, "alpha": i.alpha}


def measure(runs: Runs, worker: Worker, trial: int, phase: str, rule: Rule) -> Measurement:
    """Measure until `rule` decides. Pairs from before a restart count; spoiled pairs are kept, and do not count."""
    floors: list[float] | None = None
    while True:
        ratios = runs.ratios(trial, phase)
        decision, count = rule.decide(ratios), runs.pair_count(trial, phase)
        if decision == "more" and count >= SPOILED * rule.max_pairs:
            decision = "undecided"
        if decision != "more":
            return Measurement(decision, interval(ratios, rule.alpha))
        floors = floors or runs.floors(worker)
        add_pair(runs, worker, trial, phase, count, floors)


def add_pair(runs: Runs, worker: Worker, trial: int, phase: str, index: int, floors: list[float]) -> None:
    """Measure one pair and write it down. A time that is none ends the worker, one below the floor the candidate."""
    runs.check_stop()
    order = order_of(runs.settings.seed, trial, phase, index)
    answer = worker.call("block", {"order": order}, runs.settings.deadline("block"))
    objective = runs.subject.objective
    try:
        pair = pair_of(answer, order, len(objective.points))
    except ProposalError as error:
        worker.close()
        raise WorkerLostError("nonsense", str(error)) from None
    if (fault := below_floor(pair.samples, floors)) is not None:
        raise RefusedError("floor", fault)
    runs.study.add("pair", _body(pair, runs), trial=trial, phase=phase, idx=index)


def _body(pair: Pair, runs: Runs) -> dict[str, Any]:
    objective = runs.subject.objective
    return {
        "order": pair.order,
        "samples": [list(row) for row in pair.samples],
        "incumbent_ms": pair.latency(objective, INCUMBENT),
        "candidate_ms": pair.latency(objective, CANDIDATE),
        "log_ratio": pair.log_ratio(objective),
        "valid": pair.valid,
        "clocks": pair.clocks,
        "mode": runs.subject.mode,
    }
