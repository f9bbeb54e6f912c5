"""Runs of workers: begun and ended in the journal, so that after a crash nobody is left behind or forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from autoresearch.errors import InfrastructureError
from autoresearch.history import Trial
from autoresearch.link import Fleet, RefusedError, Worker, WorkerLostError
from autoresearch.loads import by_load
from autoresearch.settings import Settings, gate_seed
from autoresearch.study import Study
from autoresearch.subject import Subject


class StoppedError(Exception):
    """The night was asked to end; what is unfinished is resumed later."""


@dataclass
class Runs:
    """Starts workers on behalf of the ladder and the panels."""

    study: Study
    subject: Subject
    settings: Settings
    fleet: Fleet
    stop: threading.Event = field(default_factory=threading.Event)
    _device: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def worker(
        self, trial: Trial | None, candidate: dict[str, Any], incumbent: dict[str, Any] | None
    ) -> Iterator[Worker]:
        """A fresh worker that knows its candidate. Its end is recorded. It may not use the GPU but in a `turn`."""
        self.check_stop()
        number = trial.number if trial else -self.study.journal.night
        with self.fleet.worker() as worker:
            identity, started, how = worker.identity, time.monotonic(), "supervisor"
            self.study.add("run_start", identity, trial=number)
            try:
                self._begin(worker, candidate, incumbent)
                yield worker
                how = "done"
            except WorkerLostError as lost:
                how = lost.how
                raise
            except RefusedError:
                how = "refused"
                raise
            except StoppedError:
                how = "stopped"
                raise
            finally:
                worker.close()
                seconds = round(time.monotonic() - started, 3)
                self.study.add("run_end", {**identity, "seconds": seconds, "how": how}, trial=number)

    @contextmanager
    def turn(self, trial: Trial | None, worker: Worker | None = None) -> Iterator[None]:
        """The GPU, for one worker at a time, which ends with its turn: the next needs the memory.

        Its seconds are counted: they are what a search costs.
        """
        with self._device if self.fleet.one_device else nullcontext():
            self.check_stop()
            started = time.monotonic()
            try:
                yield
            finally:
                if worker is not None:
                    worker.close()
                number = trial.number if trial else -self.study.journal.night
                self.study.add("turn", {"gpu_seconds": round(time.monotonic() - started, 3)}, trial=number)

    def _begin(self, worker: Worker, candidate: dict[str, Any], incumbent: dict[str, Any] | None) -> None:
        params = {
            "subject": self.subject.to_json(),
            "candidate": candidate,
            "incumbent": incumbent,
            "cache": str(self.study.cache),
            "seed": self.gate_seed,
        }
        worker.call("begin", params, self.settings.deadline("begin"))

    @property
    def gate_seed(self) -> int:
        """Fresh inputs for the gates every night, the same ones for all its candidates."""
        return gate_seed(self.settings.seed, self.study.journal.night)

    def check_stop(self) -> None:
        """Raise StoppedError once the night was asked to end; InfrastructureError if the disk is nearly full."""
        if self.stop.is_set():
            raise StoppedError
        self.study.check_disk(self.settings.min_free_bytes)

    def check_device(self) -> None:
        """After a loss: does the GPU still answer? Raises InfrastructureError if not."""
        try:
            with self.turn(None), self.fleet.worker() as worker:
                worker.call("probe", {"mode": self.subject.mode}, self.settings.deadline("probe"))
        except (RefusedError, WorkerLostError) as error:
            self.study.add("infrastructure", {"reason": f"probe: {error}"[:2000]})
            raise InfrastructureError(
                f"the GPU does not answer any more ({error}); check it with amk doctor"
            ) from error

    def floors(self, worker: Worker) -> list[float]:
        """Least ms per token at each point. Of a cost model there is none."""
        if self.subject.mode == "predicted":
            return [0.0] * len(self.subject.objective.points)
        return [float(x) for x in worker.call("floors", {}, self.settings.deadline("floors"))["floors"]]

    # Pairs in the journal

    def _pairs(self, trial: int, phase: str) -> dict[int, dict[str, Any]]:
        history = self.study.history
        if trial > 0:
            return history.trials[trial].pairs.get(phase, {})
        return history.panels.get((-trial, phase), {})

    def pair_count(self, trial: int, phase: str) -> int:
        """How many pairs were measured, the spoiled ones included: also the index of the next."""
        return len(self._pairs(trial, phase))

    def loads_begun(self, trial: int, phase: str) -> int:
        """How many loads have pairs, those that do not count included: also the number of the next."""
        return 1 + max((int(pair["load"]) for pair in self._pairs(trial, phase).values()), default=-1)

    def loads(self, trial: int, phase: str) -> list[list[float]]:
        """The log ratios that count, load by load."""
        return by_load(self._pairs(trial, phase))
