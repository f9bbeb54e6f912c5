"""Interleavings: stepping agents in an order of choice, at random, by priorities, or in every order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.validator.machine.gpu import Machine
from tests.validator.machine.state import Agent, BadProgramError, Condition

Prefer = Callable[[list[int]], list[int]]
"""Puts agents in the order in which they are to be tried; the first that can step does."""


def run(machine: Machine, prefer: Prefer, limit: int = 1_000_000) -> None:
    """Steps agents until all lanes have ended. Raises BadProgramError for a deadlock."""
    agents = machine.agents()
    waiting: dict[int, Condition] = dict.fromkeys(range(len(agents)))
    for _ in range(limit):
        index = next((i for i in prefer(list(waiting)) if can_step(waiting[i])), None)
        if index is None:
            return finish(machine, waiting)
        step(agents, waiting, index)
    raise BadProgramError("no end")


def can_step(condition: Condition) -> bool:
    return condition is None or condition()


def step(agents: list[Agent], waiting: dict[int, Condition], index: int) -> None:
    """Lets one agent do what it has waited for, up to its next wait."""
    try:
        waiting[index] = next(agents[index])
    except StopIteration:
        del waiting[index]


def finish(machine: Machine, waiting: dict[int, Condition]) -> None:
    """Nobody can step: right if only copy engines are left."""
    if any(index % (3 + machine.setup.warps) != 2 for index in waiting):
        raise BadProgramError("deadlock")


def explore(make: Callable[[], Machine], limit: int = 200_000) -> str | None:
    """What goes wrong under some interleaving; all are tried, but states seen before are not followed again.

    Tape copies are taken at once: they touch their own SM's ring only, so their order against others does not matter.
    (Not for programs with K/V rows.)
    """
    seen: set[Any] = set()
    stack: list[tuple[int, ...]] = [()]
    while stack:
        path = stack.pop()
        machine = make()
        agents = machine.agents()
        waiting: dict[int, Condition] = dict.fromkeys(range(len(agents)))
        try:
            for index in path:
                step(agents, waiting, index)
            state = (tuple(sorted(path)), tuple(machine.packets), tuple(sorted(machine.kv.items())))
            if state in seen:
                continue
            seen.add(state)
            if len(seen) > limit:
                raise RuntimeError(f"more than {limit} states; make the program smaller")
            ready = [index for index, condition in waiting.items() if can_step(condition)]
            if not ready:
                finish(machine, waiting)
            copies = [index for index in ready if index % (3 + machine.setup.warps) in (0, 2)]
            stack += [(*path, index) for index in copies[:1] or ready]
        except BadProgramError as error:
            return f"{error} after {path}"
    return None


def randomly(rng: random.Random) -> Prefer:
    """Uniform choice."""
    return lambda waiting: rng.sample(waiting, len(waiting))


def by_priority(rng: random.Random, changes: int = 6, horizon: int = 4000) -> Prefer:
    """Random priorities that change at a few random moments: starved lanes make rare orders (PCT, ASPLOS 2010)."""
    priority: dict[int, float] = {}
    moments = {rng.randrange(horizon) for _ in range(changes)}
    steps = [0]

    def prefer(waiting: list[int]) -> list[int]:
        for index in waiting:
            if index not in priority:
                priority[index] = rng.random()
        steps[0] += 1
        if steps[0] in moments:
            priority[rng.choice(waiting)] = rng.random()
        return sorted(waiting, key=priority.__getitem__)

    return prefer
