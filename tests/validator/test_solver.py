"""Verdicts of the solver are functions of the statements: of no clock, and of nothing that was proved before."""

from __future__ import annotations

from typing import Any

import pytest
import z3

from validator import solver, windows
from validator.solver import prove, satisfiable


def hard() -> tuple[list[Any], Any]:
    """Premises and a claim that no attempt settles (a case of Fermat's theorem, cubic arithmetic)."""
    x, y, z = z3.Ints("x y z")
    return [x > 1, y > 1, z > 1], x * x * x + y * y * y != z * z * z


def test_an_undecided_obligation_is_unknown_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "RESOURCES", 20_000)
    found = prove("hard", *hard())
    assert not found.ok
    assert found.obligation.status == "unknown"
    assert found.counterexample.startswith("solver: ")


def test_work_is_limited_not_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no limit but the work the search ends."""
    monkeypatch.setattr(solver, "RESOURCES", 20_000)
    monkeypatch.setattr(solver, "BACKSTOP_MS", 4_294_967_295)
    assert prove("hard", *hard()).obligation.status == "unknown"


def test_another_attempt_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that loses its way in a context with a history is followed by others in contexts of their own."""
    attempts = []
    attempt = solver._attempt

    def lost_at_first(goal: Any, seed: int) -> tuple[Any, Any]:
        attempts.append((seed, goal.ctx == z3.main_ctx()))
        answer = attempt(goal, seed)
        return (z3.unknown, answer[1]) if len(attempts) < 3 else answer

    monkeypatch.setattr(solver, "_attempt", lost_at_first)
    x = z3.Int("x")
    assert prove("easy", [x > 1], x * 2 > 2).ok
    assert attempts == [(0, True), (0, False), (1, False)]


def test_refuted_and_satisfiable() -> None:
    x = z3.Int("x")
    found = prove("wrong", [x > 1], x > 2)
    assert (found.obligation.status, found.counterexample) == ("refuted", "x = 2")
    assert satisfiable("possible", [x > 1]).ok
    assert not satisfiable("impossible", [x > 1, x < 1]).ok


@pytest.mark.parametrize(("length", "layers"), [(32768, 36), (65536, 64)])
def test_hardest_obligations_of_real_models_have_a_wide_margin(
    length: int, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of 1,024 (Ministral, OLMo 3): proved with a third of the work, in contexts of their own."""
    monkeypatch.setattr(solver, "RESOURCES", solver.RESOURCES // 3)
    config = {
        "max_splits": 16, "min_split_rows": 64, "max_seq": length, "max_seq_padded": length, "layers": layers,
        "kv_heads": 8, "slot_bytes": 16384, "head_dim_padded": 128, "kv_element_bytes": 2, "phases": layers + 1,
        "heads": 32, "partial_stride": 130, "head_dim": 128,
    }  # fmt: skip
    attempt = solver._attempt
    monkeypatch.setattr(solver, "_attempt", lambda goal, seed: attempt(goal.translate(z3.Context()), seed))
    space = windows._Space(config, 1024)
    for split in (0, 7, 15):
        for place in windows.Place:
            assert space.split(split, place, layers * 8 * length).ok
