"""The ladder: a trial climbs rung by rung, in disposable workers, until it is kept or something speaks against it.

schema -> lower -> validate -> compile -> smoke -> gates -> screen | fresh process: proof -> full gates -> confirm

What was passed is in the journal; after a restart a trial goes on from there, and no pair is measured again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from autoresearch.errors import InfrastructureError
from autoresearch.history import (
    BASELINE,
    DUPLICATE,
    KEPT,
    LOST_RUNS,
    QUARANTINED,
    REJECTED,
    STRIKES,
    Trial,
)
from autoresearch.link import Fleet, RefusedError, Worker, WorkerLostError
from autoresearch.measure import Comparison, Measurement
from autoresearch.runs import Runs
from autoresearch.settings import Settings
from autoresearch.stats import spent_alpha
from autoresearch.study import Study
from autoresearch.subject import Subject

ON_PAPER = ("lower", "validate", "compile")
RUNNING = ("smoke", "gates")


@dataclass
class Ladder:
    """Climbs trials of one subject."""

    study: Study
    subject: Subject
    settings: Settings
    fleet: Fleet

    def __post_init__(self) -> None:
        """The runs of workers, which the journal records."""
        self.runs = Runs(self.study, self.subject, self.settings, self.fleet)

    def climb(self, trial: Trial) -> Trial:
        """Bring a trial to its verdict. Raises InfrastructureError if the search itself cannot go on."""
        while trial.verdict is None:
            if self._worn_out(trial):
                break
            try:
                self._attempt(trial)
            except RefusedError as refusal:
                self._refused(trial, refusal)
            except WorkerLostError as lost:
                self.study.add("strike", {"reason": str(lost)[:2000]}, trial=trial.number)
                self.runs.check_device()
        return trial

    def _worn_out(self, trial: Trial) -> bool:
        """Quarantine a trial that took down too many workers, or the supervisor."""
        if len(trial.strikes) >= STRIKES:
            reason = f"took down {len(trial.strikes)} workers: {trial.strikes[-1][:500]}"
        elif trial.open_runs >= LOST_RUNS:
            reason = f"{trial.open_runs} runs in a row never ended"
        else:
            return False
        self._verdict(trial, QUARANTINED, "isolation", reason)
        return True

    def _refused(self, trial: Trial, refusal: RefusedError) -> None:
        if refusal.rung == "infrastructure":
            raise InfrastructureError(refusal.reason)
        if refusal.witness == "DeviceError":
            self.runs.check_device()
        self._verdict(trial, REJECTED, refusal.rung, refusal.reason, witness=refusal.witness[:20000])

    def _attempt(self, trial: Trial) -> None:
        """Two processes. Each does on paper what it can before it takes its turn on the GPU."""
        with self.runs.worker(trial, trial.spec, None) as worker:
            if not self._climbed(trial, worker, ON_PAPER):
                return
            self._prepare(worker, delays=False)
            with self.runs.turn(trial, worker):
                if not self._look(trial, self._face(worker), worker):
                    return
        with self.runs.worker(trial, trial.spec, None) as worker:
            self._rung(trial, "proof", worker, "validate", {"resources": True})
            self._prepare(worker, delays=True)
            with self.runs.turn(trial, worker):
                self._decide(trial, self._face(worker), worker)

    def _prepare(self, worker: Worker, delays: bool) -> None:
        """Lower and compile what the turn will need: the incumbent, the kernel with injected delays."""
        self._face(worker)
        worker.call("prepare", {"delays": delays}, self.settings.deadline("prepare"))

    def _face(self, worker: Worker) -> Trial | None:
        """Tell the worker whom its candidate is compared with: the best of now."""
        incumbent = self.study.history.incumbent(self.subject.key)
        if incumbent is not None:
            worker.call("against", {"incumbent": incumbent.spec}, self.settings.deadline("against"))
        return incumbent

    def _decide(self, trial: Trial, incumbent: Trial | None, worker: Worker) -> None:
        """The second process: all gates again, then pairs that count."""
        digest = trial.passed["gates"].get("digest")
        self._rung(trial, "full gates", worker, "gates", {"full": True, "digest": digest})
        if incumbent is None:
            self._verdict(trial, BASELINE, "confirm", "the default schedule")
        else:
            self._confirm(trial, incumbent, worker)

    # Rungs

    def _look(self, trial: Trial, incumbent: Trial | None, worker: Worker) -> bool:
        """The first process: all up to the screening; a prediction costs less than the gates and goes before them."""
        if not self._climbed(trial, worker, ON_PAPER):
            return False
        if self.subject.mode == "predicted":
            screened = incumbent is None or self._screen(trial, incumbent, worker)
            return screened and self._climbed(trial, worker, RUNNING)
        return self._climbed(trial, worker, RUNNING) and (incumbent is None or self._screen(trial, incumbent, worker))

    def _climbed(self, trial: Trial, worker: Worker, methods: tuple[str, ...]) -> bool:
        """Take these rungs; False if the trial ended on one as a duplicate."""
        for method in methods:
            self._rung(trial, method, worker, method, {"full": False} if method == "gates" else {})
            if method == "lower" and self._is_duplicate(trial):
                return False
        return True

    def _rung(self, trial: Trial, rung: str, worker: Worker, method: str, params: dict[str, Any]) -> None:
        if rung in trial.passed:
            return
        with _as_rung(rung):
            result = worker.call(method, params, self.settings.deadline(method))
        if rung == "lower":
            self.study.add("content", trial=trial.number, key=str(result["content"]))
        self.study.add("passed", result, trial=trial.number, phase=rung)

    def _is_duplicate(self, trial: Trial) -> bool:
        """Nothing is measured twice: equal tables have the verdict of the trial that had them first."""
        first = self.study.history.by_content(self.subject.key, str(trial.content))
        if first is None or first is trial:
            return False
        self._verdict(trial, DUPLICATE, "lower", f"lowers to the tables of trial {first.number}", of=first.number)
        return True

    def _screen(self, trial: Trial, incumbent: Trial, worker: Worker) -> bool:
        phase = f"screen/{incumbent.number}"
        seen = Comparison(self.runs, worker, trial.number, phase).until(self.settings.screening)
        if seen.decision == "faster":
            return True
        self._measured_verdict(trial, incumbent, seen, "screen", REJECTED)
        return False

    def _confirm(self, trial: Trial, incumbent: Trial, worker: Worker) -> None:
        assert trial.ordinal is not None
        rule = self.settings.confirmation(spent_alpha(self.settings.alpha, trial.ordinal))
        seen = Comparison(self.runs, worker, trial.number, f"confirm/{incumbent.number}").until(rule)
        energy = worker.call("energy", {}, self.settings.deadline("energy")) if seen.decision == "faster" else {}
        with self.study.lock:
            current = self.study.history.incumbent(self.subject.key)
            if seen.decision != "faster":
                self._measured_verdict(trial, incumbent, seen, "confirm", REJECTED)
            elif current is None or current.number == incumbent.number:
                self._measured_verdict(trial, incumbent, seen, "confirm", KEPT, energy=energy)
            # Else another worker's candidate was kept meanwhile: the next attempt measures against that one.

    # Verdicts

    def _measured_verdict(
        self, trial: Trial, incumbent: Trial, seen: Measurement, rung: str, verdict: str, **more: Any
    ) -> None:
        what = {"faster": "faster", "slower": "not faster", "undecided": "no difference that can be told"}
        reason = f"{what.get(seen.decision, seen.decision)}: {seen.interval}"
        self._verdict(trial, verdict, rung, reason, against=incumbent.number, **seen.to_json(), **more)

    def _verdict(self, trial: Trial, verdict: str, rung: str, reason: str, **detail: Any) -> None:
        body = {"verdict": verdict, "rung": rung, "reason": reason, **detail}
        self.study.add("verdict", body, trial=trial.number)


@contextmanager
def _as_rung(rung: str) -> Iterator[None]:
    """Refusals carry the rung's own name, unless they come from further down."""
    try:
        yield
    except RefusedError as refusal:
        if refusal.rung in ("validate", "validator", "gates"):
            refusal.rung = rung
        raise
