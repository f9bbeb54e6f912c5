"""One night: the default schedule, an A/A panel, trials until a budget is used up, the winner once more, a report.

The supervisor never touches CUDA. All it knows is in the journal, so it can be killed at any moment and go on later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from amk.errors import AmkError
from autoresearch.budget import spent
from autoresearch.errors import IMPROVED, INFRASTRUCTURE, NOTHING_BETTER, InfrastructureError, ProposalError
from autoresearch.history import BASELINE, History, Night, Trial, factor
from autoresearch.ladder import Ladder
from autoresearch.link import Fleet
from autoresearch.memory import lessons, warm_starts
from autoresearch.panel import compare_with_baseline, run_panel
from autoresearch.process import kill_strays
from autoresearch.proposers import Proposer, View
from autoresearch.runs import StoppedError
from autoresearch.settings import Settings
from autoresearch.space import Space, knob_space
from autoresearch.spec import Spec, spec_of
from autoresearch.study import Study
from autoresearch.subject import Subject, code_facts

ATTEMPTS = 50
"""Proposals that were tried before, or are none, until a proposer counts as having no more."""


def _gravity(error: BaseException) -> bool:
    """That the night was asked to stop comes last: it is no failure."""
    return isinstance(error, StoppedError)


@dataclass(frozen=True)
class Outcome:
    """How a night ended."""

    exit_code: int
    reason: str


class Supervisor:
    """Runs nights of one subject in one study."""

    def __init__(
        self, study: Study, subject: Subject, settings: Settings, fleet: Fleet,
        say: Callable[[str], None] = lambda _: None, elsewhere: Iterable[History] = (), space: Space | None = None,
    ) -> None:  # fmt: skip
        self.study, self.subject, self.settings, self.fleet = study, subject, settings, fleet
        self.space: Space = space or knob_space()
        self.ladder = Ladder(study, subject, settings, fleet)
        self.runs = self.ladder.runs
        self._say, self._elsewhere = say, list(elsewhere)
        self._proposing = threading.Lock()
        self._pending: list[Trial] = []
        self._broken = threading.Event()

    # A night

    def run(self, proposer: Proposer, resume: bool = False) -> Outcome:
        """A whole night; with `resume`, the rest of the last one."""
        with self.night(resume) as outcome:
            if outcome is None:
                self.prelude()
                self.search(proposer)
            return self.finish()

    def run_rest(self) -> Outcome:
        """The rest of a night whose agent has left."""
        with self.night(resume=True):
            self.prelude()
            self.finish_pending()
            return self.finish()

    @contextmanager
    def night(self, resume: bool = False) -> Any:
        """Hold the folder and a night in the journal; failures of the infrastructure end it as such."""
        with self.study.exclusive():
            self.study.refresh()
            kill_strays(self.study.history.workers)
            self._begin(resume)
            try:
                yield None
            except InfrastructureError as error:
                self._end(Outcome(INFRASTRUCTURE, str(error)))
                raise

    def _begin(self, resume: bool) -> None:
        history, key = self.study.history, self.subject.key
        last = history.nights.get(max(history.nights, default=0))
        if resume and last is not None and last.ended is None and last.subject == key:
            self.study.journal.begin_night(key, last.number, last.elapsed)
            self.study.add("resumed", code_facts())
            self._say(f"night {last.number}: resumed after {last.elapsed:.0f} s")
            return
        number = max(history.nights, default=0) + 1
        self.study.journal.begin_night(key, number)
        facts = {"subject": self.subject.to_json(), "settings": self.settings.to_json(), "code": code_facts()}
        self.study.add("night", facts)
        self._say(f"night {number}: {self.subject} ({self.subject.mode}), {self.space.size:.2g} settings")

    @property
    def current(self) -> Night:
        """This night."""
        return self.study.history.nights[self.study.journal.night]

    def prelude(self) -> None:
        """What must hold before anything counts: the default schedule works, old winners still win, A/A is quiet."""
        baseline = self._baseline()
        incumbent = self.incumbent
        if incumbent.number != baseline.number and incumbent.night < self.current.number:
            self._remeasure(incumbent, baseline)
        if self.settings.aa_loads and not self.current.panel:
            result = run_panel(self.runs, self.incumbent)
            self._say(
                f"A/A: kept {result['kept']} of {result['comparisons']} comparisons over {result['pairs']} pairs in "
                f"{result['loads']} loads (false-keep rate at most {result['kept_upper']:.1%} at 95 %); sd of a load "
                f"{result['load_sd']:.2%}, of a pair {result['pair_sd']:.2%}"
            )

    def _baseline(self) -> Trial:
        """The default schedule's trial, brought up the ladder if it is new."""
        spec = Spec(setting=self.subject.default)
        trial = self.study.history.by_key(self.subject.key, spec.key)
        trial = trial or self.study.propose(spec.to_json(), spec.key, "default", None, "the default schedule")
        assert trial is not None
        if trial.verdict is None:
            self._say(f"trial {trial.number}: the default schedule, up the whole ladder")
            self._climb(trial)
        if trial.verdict != BASELINE:
            raise InfrastructureError(
                f"the default schedule fails at rung {trial.rung}: {trial.reason}; look at it with amk verify, and "
                "search in another folder (--out) once that passes"
            )
        return trial

    @property
    def incumbent(self) -> Trial:
        """The trial to beat."""
        best = self.study.history.incumbent(self.subject.key)
        assert best is not None
        return best

    def _remeasure(self, winner: Trial, baseline: Trial) -> None:
        """An earlier night's winner counts only after it has won again."""
        seen = self.current.recheck
        if seen is None:
            seen = compare_with_baseline(self.runs, winner, baseline, "recheck")
            self.study.add("recheck", seen)
        if seen["high"] < 0:
            return
        self.study.add("demoted", {"trial": winner.number, "to": baseline.number, "reason": "it did not win again"})
        self._say(f"trial {winner.number} of an earlier night did not win again; starting from the default")

    # Searching

    def search(self, proposer: Proposer) -> None:
        """Trials until a budget is used up or the proposer has no more; first those that a stop left unfinished."""
        self._pending = self.study.history.unfinished(self.subject.key)
        try:
            with ThreadPoolExecutor(self.fleet.size) as pool:
                lanes = [pool.submit(self._lane, proposer) for _ in range(self.fleet.size)]
            for error in sorted((e for lane in lanes if (e := lane.exception())), key=_gravity):
                raise error
        except StoppedError:
            self._say("stopping as asked; amk research resume goes on from here")
            raise
        finally:
            proposer.close()

    def finish_pending(self) -> None:
        """Bring what a stop left unfinished to its verdict, where nobody searches in lanes."""
        for trial in self.study.history.unfinished(self.subject.key):
            self._climb(trial)

    def _lane(self, proposer: Proposer) -> None:
        """One trial after the other. What ends one lane for good ends all."""
        try:
            while not self._broken.is_set() and (trial := self._next(proposer)) is not None:
                self._climb(trial)
                with self._proposing:
                    proposer.learn(trial)
        except BaseException:
            self._broken.set()
            raise

    def over(self) -> str | None:
        """Why the night is over, or None."""
        with self.study.lock:
            return spent(self.study.history, self.current, self.settings, self.study.journal.elapsed)

    def view(self, attempt: int = 0) -> View:
        """What proposers may know."""
        histories = [self.study.history, *self._elsewhere]
        return View(
            self.space, self.study.history, self.subject.key, self.settings.seed, attempt,
            lessons(histories, self.space), warm_starts(histories, self.subject.key, self.space),
        )  # fmt: skip

    def _next(self, proposer: Proposer) -> Trial | None:
        """The next trial, or None if the night is over or there are no more."""
        with self._proposing:
            if self._pending:
                return self._pending.pop(0)  # counted when it was proposed: no budget is asked again
            if self.over() is not None:
                return None
            for attempt in range(ATTEMPTS):
                proposal = proposer.propose(self.view(attempt))
                if proposal is None:
                    break
                trial = self.submit(proposal.spec, proposer.name, proposal.parent, proposal.why)
                if isinstance(trial, Trial):
                    self._say(f"trial {trial.number} ({trial.proposer}): {trial.why}")
                    return trial
            self.study.add("note", {"text": f"proposer {proposer.name} has no more proposals"})
        return None

    def submit(self, data: Any, proposer: str, parent: int | None, why: str) -> Trial | str:
        """A new trial of a submission, or why there is none: it is no candidate (also recorded), or was tried."""
        try:
            spec = spec_of(data, self.space)
        except ProposalError as error:
            self.study.add("refused", {"proposer": proposer, "rung": "schema", "reason": str(error)[:2000]})
            return f"schema: {error}"
        trial = self.study.propose(spec.to_json(), spec.key, proposer, parent, why)
        if trial is not None:
            return trial
        before = self.study.history.by_key(self.subject.key, spec.key)
        return f"tried before, as trial {before.number if before else '?'}"

    def _climb(self, trial: Trial) -> None:
        self.ladder.climb(trial)
        with self.study.lock:
            self._say(f"trial {trial.number} {trial.verdict} at {trial.rung}: {trial.reason} | {self._standing()}")

    def _standing(self) -> str:
        """The best so far, and what it took."""
        best, night = self.study.history.incumbent(self.subject.key), self.current
        gain = "" if best is None else f"best {factor(best.score or 0.0):.4f}x (trial {best.number}), "
        finished = sum(t.verdict is not None for t in self.study.history.of(self.subject.key))
        return f"{gain}{finished} trials, {self.study.journal.elapsed:.0f} s, GPU {night.gpu_seconds:.0f} s"

    # The end

    def finish(self) -> Outcome:
        """Compare the winner with the default once more, and close the night."""
        reason = self.over() or "no more proposals"
        winner = self.incumbent
        baseline = self.baseline
        outcome = Outcome(NOTHING_BETTER, reason)
        if not self.is_default(winner):
            seen = self.headline(winner)
            if seen["high"] >= 0:
                self.study.add(
                    "demoted", {"trial": winner.number, "to": baseline.number, "reason": "no gain over the default"}
                )
            elif winner.night == self.current.number:
                outcome = Outcome(IMPROVED, reason)
        self._end(outcome)
        return outcome

    @property
    def baseline(self) -> Trial:
        """The trial of the default schedule."""
        return self.study.history.trials[self.study.history.baselines[self.subject.key]]

    def is_default(self, trial: Trial) -> bool:
        """Whether a trial is that of the default schedule."""
        return trial.number == self.baseline.number

    def headline(self, winner: Trial) -> dict[str, Any]:
        """The winner directly against the default: of this night, measured now if it was not yet."""
        known = self.current.headline
        if known is not None and known["trial"] == winner.number:
            return known
        seen = compare_with_baseline(self.runs, winner, self.baseline, "headline")
        self.study.add("headline", seen)
        interval = f"{factor(seen['log_ratio']):.4f}x [{factor(seen['high']):.4f}, {factor(seen['low']):.4f}]"
        self._say(
            f"trial {winner.number} against the default: {interval} ({seen['pairs']} pairs in {seen['loads']} loads)"
        )
        return seen

    def _end(self, outcome: Outcome) -> None:
        """Write the end down, if there is disk for it."""
        try:
            if outcome.exit_code == INFRASTRUCTURE:
                self.study.add("infrastructure", {"reason": outcome.reason[:2000]})
            else:
                self.study.add("night_end", {"exit_code": outcome.exit_code, "reason": outcome.reason})
        except AmkError as error:
            self._say(f"the end of the night could not be written down: {error}")
