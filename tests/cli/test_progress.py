"""Progress: plain lines for slow steps in a log, bars on a terminal, silence by default."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from amk import progress
from amk.progress import SILENT, ConsoleProgress


def reporter(terminal: bool) -> tuple[ConsoleProgress, io.StringIO]:
    out = io.StringIO()
    return ConsoleProgress(Console(file=out, force_terminal=terminal, width=80, color_system=None)), out


def test_a_quick_step_leaves_nothing_in_a_log() -> None:
    shown, out = reporter(terminal=False)
    with shown.step("Quick", total=2) as step:
        step.advance()
    assert out.getvalue() == ""


def test_a_slow_step_says_so_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
    shown, out = reporter(terminal=False)
    with shown.step("Compiling [x]"):
        time.sleep(0.3)
        assert out.getvalue() == "Compiling [x] ...\n"
    assert out.getvalue().splitlines()[1].startswith("Compiling [x]: 0.")


def test_nested_bars_on_a_terminal() -> None:
    shown, out = reporter(terminal=True)
    with shown.step("Outer", total=1) as outer, shown.step("Inner"):
        outer.advance()
        time.sleep(0.3)
    assert "Outer" in out.getvalue()
    assert "Inner" in out.getvalue()


def test_a_failed_step_stops_the_bar() -> None:
    shown, _ = reporter(terminal=True)
    with pytest.raises(ValueError, match="x"), shown.step("Outer"):
        raise ValueError("x")
    with shown.step("Again"):
        pass


def test_silent() -> None:
    with SILENT.step("Nothing", total=3) as step:
        step.advance(3)
