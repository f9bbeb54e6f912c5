"""Launches that end early: what is asked of every machine."""

from __future__ import annotations

from amk.runtime.machine import Launch, Machine


def check_stops(machine: Machine) -> None:
    """A stop token and a cancelling host end a launch there and then, and leave the machine fit for the next one."""
    free = machine.run(Launch(0, [5], 12, 0), lambda _: None).tokens
    stop = next(token for token in free if token != free[0])
    result = machine.run(Launch(0, [5], 12, 0, stop_ids=(stop,)), lambda _: None)
    assert (result.tokens, result.stopped) == (free[: free.index(stop) + 1], "stop")
    seen: list[int] = []
    result = machine.run(Launch(0, [5], 50, 0, should_stop=lambda: len(seen) >= 3), seen.append)
    assert (result.tokens, result.stopped) == (seen, "cancelled")
    assert 3 <= result.steps_done == len(seen) < 50
    assert seen[:12] == free[: len(seen)]
