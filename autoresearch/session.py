"""From what a command line says to a supervisor, a proposer and a report."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amk.errors import DeviceError, UsageError
from autoresearch.agent_process import serve_process
from autoresearch.ask_gpu import first_gpu
from autoresearch.budget import agent_spent
from autoresearch.desk import Desk
from autoresearch.errors import InfrastructureError
from autoresearch.history import History
from autoresearch.link import Fleet
from autoresearch.process import LocalFleet
from autoresearch.proposers import NAMES, Proposer, make_proposer
from autoresearch.proposers.llm import Endpoint, LanguageModel
from autoresearch.report import write_report
from autoresearch.runs import StoppedError
from autoresearch.settings import Settings, settings_from_json
from autoresearch.study import JOURNAL, MODES, Study, find_study, root_of
from autoresearch.subject import Mode, Subject, artifact_inputs, default_setting, is_artifact, make_subject
from autoresearch.supervisor import Outcome, Supervisor
from autoresearch.workload import Workload, at_positions, read_workload

STOPPED = 130
MCP_AGENT = "agent over MCP"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What to search, as the command line has it. `place` is an artifact, a research folder, or a model."""

    place: str
    gpu: str = "auto"
    max_seq: int | None = None
    kv_dtype: str = "fp16"
    random_weights: int | None = None
    workload: Path | None = None
    positions: tuple[int, ...] = ()
    mode: str = "auto"
    out: Path | None = None


def open_study(request: Request) -> tuple[Study, Subject]:
    """The study and subject of a request; makes the folder. Raises UsageError and the model's errors."""
    path = Path(request.place)
    mode = choose_mode(request)
    if is_artifact(path):
        inputs = artifact_inputs(path)
        return _study(root_of(path), mode), _subject(request, mode, **inputs)
    if path.is_dir() and any((path / name / JOURNAL).is_file() for name in MODES):
        study = find_study(path, mode if request.mode != "auto" else None)
        return study, _renewed(study.subject, request)
    gpu = "h200" if request.gpu == "auto" and mode == "predicted" else request.gpu
    subject = _subject(
        request, mode, model=request.place, gpu=gpu, max_seq=request.max_seq, kv_dtype=request.kv_dtype,
        random_seed=request.random_weights,
    )  # fmt: skip
    return _study(_root(request, subject), mode), subject


def cache_of(request: Request) -> tuple[Path, Subject]:
    """The cache and subject of a measured search that may not have begun yet, on whatever machine."""
    subject = _subject(
        request, "measured", model=request.place, gpu=request.gpu, max_seq=request.max_seq, kv_dtype=request.kv_dtype,
        random_seed=request.random_weights,
    )  # fmt: skip
    return _root(request, subject) / "measured" / "cache", subject


def _root(request: Request, subject: Subject) -> Path:
    return request.out or Path(f"{Path(subject.model).stem}-{subject.target['name']}-research")


def _study(root: Path, mode: Mode) -> Study:
    return Study(root / mode)


def _subject(request: Request, mode: Mode, *, model: str, gpu: str, max_seq: int | None, kv_dtype: str,
             random_seed: int | None) -> Subject:  # fmt: skip
    subject = make_subject(model, gpu, max_seq, kv_dtype, random_seed, None, mode)
    workload = _workload(request, subject.max_seq)
    return replace(subject, workload=workload.to_json()) if workload else subject


def _renewed(subject: Subject, request: Request) -> Subject:
    """The folder's subject with today's kernels, and another workload if one is given."""
    from amk.emit.compile import kernel_sources_sha256

    workload = _workload(request, subject.max_seq)
    points = workload.to_json() if workload else subject.workload
    default = default_setting(subject.target["name"], subject.shape, subject.kv_dtype)
    return replace(subject, kernels_sha256=kernel_sources_sha256(), default=default, workload=points)


def _workload(request: Request, max_seq: int) -> Workload | None:
    if request.workload is not None:
        return read_workload(request.workload, max_seq)
    return at_positions(request.positions, max_seq) if request.positions else None


def choose_mode(request: Request) -> Mode:
    """Measured where there is a GPU, else predicted; or as asked. Raises InfrastructureError if that cannot be."""
    if request.mode == "predicted":
        return "predicted"
    try:
        first_gpu()
    except DeviceError as error:
        if request.mode == "measured":
            raise InfrastructureError(f"--mode measured: {error}") from error
        return "predicted"
    return "measured"


@dataclass
class Session:
    """A night about to be run: the supervisor, and how it is driven."""

    supervisor: Supervisor
    endpoint: Endpoint | None
    say: Say

    def run(self, resume: bool = False) -> Outcome:
        """Run the night, with the proposer that the settings name, and write the report however it ends."""
        supervisor = self.supervisor
        try:
            with stop_signals(supervisor.runs.stop):
                return self._drive(resume)
        except StoppedError:
            return Outcome(STOPPED, "amk research resume goes on from here")
        finally:
            report = write_report(supervisor.study, supervisor.subject)
            self.say(f"report: {report}")

    def _drive(self, resume: bool) -> Outcome:
        supervisor, name = self.supervisor, self.supervisor.settings.proposer
        if name == "llm":
            return supervisor.run(self._language_model(), resume)
        if name == MCP_AGENT:  # the agent has left: what it left unfinished is brought to its end
            return supervisor.run_rest()
        proposer = make_proposer(name)
        if not isinstance(proposer, list):
            return supervisor.run(proposer, resume)
        with supervisor.night(resume):
            supervisor.prelude()
            supervisor.finish_pending()
            reason = serve_process(proposer, Desk(supervisor, Path(proposer[0]).name), self._over)
            self.say(f"agent: {reason}")
            supervisor.runs.check_stop()
            return supervisor.finish()

    def _over(self) -> str | None:
        return "stopped" if self.supervisor.runs.stop.is_set() else self.supervisor.over()

    def _language_model(self) -> Proposer:
        if self.endpoint is None:
            raise UsageError("--proposer llm needs --llm-url and --llm-model")
        supervisor = self.supervisor
        desk = Desk(supervisor, "llm")
        return LanguageModel(
            self.endpoint, NAMES["mixed"](), lambda body: note_agent(supervisor, body),
            lambda: agent_spent(supervisor.current, supervisor.settings), desk.timeline,
        )  # fmt: skip


def note_agent(supervisor: Supervisor, body: dict[str, Any]) -> None:
    """Write down what a call of a language model cost."""
    supervisor.study.add("agent", body)


@contextmanager
def stop_signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM ask for an end after the measurement in progress; a second one ends at once."""

    def handle(number: int, _: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        os.write(sys.stderr.fileno(), b"stopping after this measurement\n" if number else b"")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def make_session(
    study: Study, subject: Subject, settings: Settings, say: Say, endpoint: Endpoint | None = None,
    fleet: Fleet | None = None,
) -> Session:  # fmt: skip
    """A session over local workers, unless another fleet is given. Raises UsageError for a proposer that is none."""
    if settings.proposer not in ("llm", MCP_AGENT):
        make_proposer(settings.proposer)
    workers = fleet or LocalFleet(study.scratch, size=settings.ahead)
    return Session(Supervisor(study, subject, settings, workers, say, _elsewhere(settings)), endpoint, say)


def _elsewhere(settings: Settings) -> list[History]:
    """Histories of other searches to learn from; one that cannot be read is a mistake to be told."""
    return [find_study(Path(place)).refresh() for place in settings.learn_from]


def last_settings(study: Study) -> Settings:
    """The settings of the last night."""
    history = study.refresh()
    if not history.nights:
        raise UsageError(f"{study.folder}: no night was run here yet; start with amk research run")
    return settings_from_json(history.nights[max(history.nights)].settings)


def moved(subject: Subject, model: Path | None) -> Subject:
    """The subject with its model at another place; the worker checks that it is the same model."""
    return subject if model is None else replace(subject, model=str(model.resolve()))


def check_resumable(study: Study) -> None:
    """Raise UsageError if the last night has ended, or what it measured is not what would be measured now."""
    night, subject = study.refresh().nights[max(study.history.nights)], study.subject
    if night.ended is not None:
        raise UsageError(f"night {night.number} has ended ({night.ended['reason']}); amk research run starts another")
    if _renewed(subject, Request(subject.model)).key != subject.key:
        what = "the kernels or the default schedule have changed"
        raise UsageError(f"night {night.number}: {what} since it began; amk research run starts another")
