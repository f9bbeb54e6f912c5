"""Latency of decoding at a position: launches of some tokens, timed on the GPU, with energy and repeatability."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from amk.bench.energy import Energy, Sample, energy_of
from amk.runtime.machine import Launch, LaunchResult

WARM_UP = 2
MIN_LAUNCHES = 9
MIN_SECONDS = 1.0
SAMPLE_SECONDS = 0.05
"""Between reads of the energy counter, which take time of their own."""


class TimedMachine(Protocol):
    """A machine that knows how many milliseconds its last launch took on the GPU."""

    last_launch_ms: float

    def run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        """Execute a launch."""


class Readings(Protocol):
    """What can be read of the GPU while it works."""

    def joules(self) -> float | None:
        """The energy counter, or None."""

    def state(self) -> dict[str, Any]:
        """Clocks, temperature and power now."""


@dataclass(frozen=True)
class Latency:
    """Milliseconds per token of every launch of `steps` tokens from `pos`, and what held beside it.

    `same_tokens`: all launches produced the same tokens. `same_logits`: so did two more, and equal logits, bit by bit.
    """

    pos: int
    steps: int
    launch_ms: tuple[float, ...]
    energy: Energy | None
    state: dict[str, Any]
    same_tokens: bool
    same_logits: bool

    @property
    def ms(self) -> float:
        """Median of the launches."""
        return statistics.median(self.launch_ms)

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median."""
        return (max(self.launch_ms) - min(self.launch_ms)) / self.ms


def measure_latency(
    machine: TimedMachine, readings: Readings, pos: int, steps: int, token: int = 1, min_seconds: float = MIN_SECONDS
) -> Latency:
    """Decode `steps` tokens from `pos` again and again, over whatever K/V the cache holds before `pos`."""
    launch = Launch(pos, [token], steps, 0)
    for _ in range(WARM_UP):
        machine.run(launch, _ignore)
    times: list[float] = []
    tokens: set[tuple[int, ...]] = set()
    samples: list[Sample] = []
    started = time.perf_counter()
    while len(times) < MIN_LAUNCHES or time.perf_counter() - started < min_seconds:
        tokens.add(tuple(machine.run(launch, _ignore).tokens))
        times.append(machine.last_launch_ms / steps)
        _sample(samples, readings, len(times) * steps)
    state = readings.state()
    logits_tokens, same_logits = _logits_repeat(machine, launch)
    same_tokens = tokens == {logits_tokens}
    return Latency(pos, steps, tuple(times), energy_of(samples), state, same_tokens, same_tokens and same_logits)


def _sample(samples: list[Sample], readings: Readings, tokens: int) -> None:
    now = time.perf_counter()
    if samples and now - samples[-1].seconds < SAMPLE_SECONDS:
        return
    joules = readings.joules()
    if joules is not None:
        samples.append(Sample(time.perf_counter(), joules, tokens))


def _logits_repeat(machine: TimedMachine, launch: Launch) -> tuple[tuple[int, ...], bool]:
    """The tokens of a launch that keeps its logits, and whether the next one gives the same bits."""
    keeping = Launch(launch.start_pos, launch.given, launch.steps, 0, want_logits=True)
    first, second = (machine.run(keeping, _ignore) for _ in range(2))
    if first.logits is None or second.logits is None:
        return tuple(first.tokens), False
    same = first.tokens == second.tokens and np.array_equal(first.logits.view(np.uint32), second.logits.view(np.uint32))
    return tuple(first.tokens), same


def _ignore(_: int) -> None:
    pass
