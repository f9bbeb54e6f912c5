"""An open search: the folder, its journal, and the history that the journal folds to. Threads share it."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from amk.errors import UsageError
from autoresearch.errors import InfrastructureError
from autoresearch.history import History, Trial, fold
from autoresearch.journal import Journal
from autoresearch.subject import Mode, Subject, is_artifact, subject_from_json

JOURNAL = "journal.sqlite"
MODES: tuple[Mode, ...] = ("measured", "predicted")


class Study:
    """One mode's folder: journal.sqlite, cache/, scratch/, report.html."""

    def __init__(self, folder: Path, journal: Journal | None = None) -> None:
        self.folder = folder
        self.journal = journal or Journal(folder / JOURNAL)
        self.lock = threading.RLock()
        self.history = History()
        self.refresh()

    @property
    def cache(self) -> Path:
        """Cubins and oracle answers."""
        return self.folder / "cache"

    @property
    def scratch(self) -> Path:
        """Where workers write what nobody keeps."""
        return self.folder / "scratch"

    def refresh(self) -> History:
        """Fold what was added since."""
        with self.lock:
            return fold(self.journal.events(self.history.last_seq), self.history)

    def add(self, kind: str, body: dict[str, Any] | None = None, **keys: Any) -> bool:
        """Append an event and fold it. False if it was there already."""
        with self.lock:
            added = self.journal.add(kind, body, **keys)
            self.refresh()
            return added

    def propose(self, spec: dict[str, Any], key: str, proposer: str, parent: int | None, why: str) -> Trial | None:
        """A new trial, or None if this was proposed before."""
        with self.lock:
            number = self.refresh().next_trial
            body = {"spec": spec, "proposer": proposer, "parent": parent, "why": why[:2000]}
            added = self.add("proposed", body, trial=number, key=key)
            return self.history.trials[number] if added else None

    @property
    def subject(self) -> Subject:
        """The subject of the latest night. Raises UsageError if there was none."""
        history = self.refresh()
        if not history.nights:
            raise UsageError(f"{self.folder}: no night was run here yet; start with amk research run")
        return subject_from_json(history.subjects[history.nights[max(history.nights)].subject])

    def check_disk(self, least: int) -> None:
        """Raise InfrastructureError if the disk is nearly full."""
        free = shutil.disk_usage(self.folder).free
        if free < least:
            raise InfrastructureError(f"{self.folder}: {free} bytes free, {least} needed; free some, then resume")

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Be the only supervisor of this folder; the system lets go of the lock if the process dies."""
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"{self.folder}: a search is running here already; wait for it or stop it") from None
            yield

    def close(self) -> None:
        """Close the journal and remove what workers left."""
        self.journal.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(self.scratch)


def root_of(path: Path) -> Path:
    """Where the searches of an artifact or of a research folder live."""
    return path / "research" if is_artifact(path) else path


def find_study(path: Path, mode: Mode | None = None) -> Study:
    """The search in a folder: the measured one if there is one. Raises UsageError."""
    root = root_of(path)
    for candidate in (mode,) if mode else MODES:
        if (root / candidate / JOURNAL).is_file():
            return Study(root / candidate)
    what = f"{mode} search" if mode else "search"
    raise UsageError(f"{path}: holds no {what}; start one with amk research run {path}")
