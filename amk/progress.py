"""Progress of anything that takes longer than a second, on stderr.

The pipeline reports through the `Progress` protocol and never prints: `SILENT` drops everything, `ConsoleProgress`
draws bars on a terminal and writes plain lines elsewhere.

    with progress.step("Reading tensors", total=len(names)) as step:
        for name in names:
            ...
            step.advance()
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

QUIET_SECONDS = 1.0
"""A step shorter than this leaves no line behind."""


class Step(Protocol):
    """A running step."""

    def advance(self, amount: int = 1) -> None:
        """Count `amount` of the step's total as done."""


class Progress(Protocol):
    """Where long work reports to."""

    def step(self, title: str, total: int | None = None) -> AbstractContextManager[Step]:
        """Enter a step; `total` is how often it will advance, None when that is not known."""


class _SilentStep:
    def advance(self, amount: int = 1) -> None:
        """Nothing to show."""


class SilentProgress:
    """Reports nothing: the default of the Python API."""

    @contextmanager
    def step(self, title: str, total: int | None = None) -> Iterator[Step]:  # noqa: ARG002
        """Enter a step that shows nothing."""
        yield _SilentStep()


SILENT: Progress = SilentProgress()


class _BarStep:
    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def advance(self, amount: int = 1) -> None:
        """Move the bar."""
        self._bars.advance(self._task, amount)


class ConsoleProgress:
    """Bars on a terminal, plain lines for steps over a second elsewhere, always on stderr."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._bars: Bars | None = None

    @contextmanager
    def step(self, title: str, total: int | None = None) -> Iterator[Step]:
        """Enter a step; a step of over a second leaves a line with its time."""
        started = time.monotonic()
        inner = self._bar(title, total) if self._console.is_terminal else self._plain(title)
        with inner as step:
            yield step
        elapsed = time.monotonic() - started
        if elapsed >= QUIET_SECONDS:
            self._line(f"{title}: {elapsed:.1f} s")

    @contextmanager
    def _bar(self, title: str, total: int | None) -> Iterator[Step]:
        outermost = self._bars is None
        bars = self._bars or self._start_bars()
        task = bars.add_task(title, total=total)
        try:
            yield _BarStep(bars, task)
        finally:
            bars.remove_task(task)
            if outermost:
                bars.stop()
                self._bars = None

    @contextmanager
    def _plain(self, title: str) -> Iterator[Step]:
        # Says what is running once a second has passed, so that a log never looks hung.
        timer = threading.Timer(QUIET_SECONDS, self._line, args=(f"{title} ...",))
        timer.daemon = True
        timer.start()
        try:
            yield _SilentStep()
        finally:
            timer.cancel()

    def _start_bars(self) -> Bars:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bars = Bars(*columns, console=self._console, transient=True)
        self._bars.start()
        return self._bars

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
