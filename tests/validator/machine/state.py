"""State of the machine: what an SM holds in shared memory and registers, and the setting of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

Condition = Callable[[], bool] | None
Agent = Iterator[Condition]
Steps = Generator[Condition, None, Any]
"""Steps that come to a value."""

Args = dict[str, int]


class BadProgramError(Exception):
    """The machine saw a deadlock, a wrong value or an access outside a buffer."""


@dataclass
class Setup:
    """Tokens of the run: the first position, for each token whether its logits are needed; warps of a compute lane."""

    start: int = 0
    heads: tuple[bool, ...] = (False, True, True)
    epoch: int = 1
    warps: int = 2


@dataclass
class Sm:
    """State of one SM; packets and the K/V cache are the machine's. Lists have an entry per compute warp."""

    warps: int
    ring: dict[int, Any] = field(default_factory=dict)
    issued: int = 0
    landed: int = 0
    pending: list[Any] = field(default_factory=list)
    reduce: dict[int, list[Any]] = field(default_factory=dict)
    reduce_taken: int = 0
    scratch: dict[Any, Any] = field(default_factory=dict)
    new_row: dict[Any, Any] = field(default_factory=dict)
    best: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ring_released, self.ring_next, self.reduce_given, self.barrier = ([0] * self.warps for _ in range(4))
        self.x: list[Any] = [None] * self.warps
        self.squares: list[Any] = [None] * self.warps
        self.token: list[Any] = [None] * self.warps
        self.residual: list[dict[int, Any]] = [{} for _ in range(self.warps)]
        self.accumulators: list[dict[int, tuple[Any, ...]]] = [{} for _ in range(self.warps)]
