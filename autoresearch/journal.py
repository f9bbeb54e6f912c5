"""The journal: one SQLite file (WAL), one append-only table of events, the single truth of a search.

Everything that is known is folded from the events (`autoresearch.history`), so a process killed at any moment leaves
a journal that says exactly what was done. Unique indexes refuse a second proposal of the same candidate, a second
verdict and a second record of the same pair; triggers refuse changes of what is written.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoresearch.errors import JournalError

FORMAT = 2
"""2: every pair names its load."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  wall REAL NOT NULL,      -- seconds since 1970, for people: nothing is decided by it
  night INTEGER NOT NULL,
  elapsed REAL NOT NULL,   -- seconds of the night by a clock that never jumps
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  trial INTEGER,
  key TEXT,
  phase TEXT,
  idx INTEGER,
  body TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS proposed_once ON events (subject, key) WHERE kind = 'proposed';
CREATE UNIQUE INDEX IF NOT EXISTS trial_once ON events (trial) WHERE kind = 'proposed';
CREATE UNIQUE INDEX IF NOT EXISTS passed_once ON events (trial, phase) WHERE kind = 'passed';
CREATE UNIQUE INDEX IF NOT EXISTS verdict_once ON events (trial) WHERE kind = 'verdict';
CREATE UNIQUE INDEX IF NOT EXISTS pair_once ON events (trial, phase, idx) WHERE kind = 'pair';
CREATE INDEX IF NOT EXISTS by_trial ON events (trial, kind);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""


@dataclass(frozen=True)
class Event:
    """Something that happened. `key` is a hash (of a submission, or of a content), `phase` a rung or a measurement."""

    seq: int
    wall: float
    night: int
    elapsed: float
    kind: str
    subject: str
    trial: int | None
    key: str | None
    phase: str | None
    idx: int | None
    body: dict[str, Any]


_COLUMNS = "seq, wall, night, elapsed, kind, subject, trial, key, phase, idx, body"


class Journal:
    """An open journal. Threads may share it; every `add` is durable when it returns."""

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self.path, self._wall = path, wall
        self._lock = threading.RLock()
        self.night, self.subject = 0, ""
        self._offset, self._started = 0.0, time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._check_format()
            self._db.executescript(_SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"{path}: cannot be opened as a journal ({error}); name another folder") from error

    def _check_format(self) -> None:
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        if found not in (0, FORMAT):
            raise JournalError(f"{self.path}: journal of format {found}, this amk reads {FORMAT}; use another folder")
        if found == 0:
            self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def begin_night(self, subject: str, night: int, elapsed: float = 0.0) -> None:
        """Events from now on belong to this night and subject; its clock goes on from `elapsed` seconds."""
        self.subject, self.night = subject, night
        self._offset, self._started = elapsed, time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds of this night so far, restarts included."""
        return self._offset + time.monotonic() - self._started

    def add(
        self, kind: str, body: dict[str, Any] | None = None, *, trial: int | None = None, key: str | None = None,
        phase: str | None = None, idx: int | None = None,
    ) -> bool:  # fmt: skip
        """Append an event; False if the unique indexes say that it is there already. Raises JournalError."""
        text = json.dumps(body or {}, sort_keys=True, allow_nan=False)
        row = (self._wall(), self.night, round(self.elapsed, 3), kind, self.subject, trial, key, phase, idx, text)
        try:
            with self._lock:
                self._db.execute(f"INSERT INTO events ({_COLUMNS[5:]}) VALUES ({', '.join('?' * len(row))})", row)
        except sqlite3.IntegrityError:
            return False
        except sqlite3.Error as error:
            raise JournalError(
                f"{self.path}: cannot be written ({error}); free some disk space, then resume"
            ) from error
        return True

    def events(self, after: int = 0) -> Iterator[Event]:
        """The events after a sequence number, in order."""
        with self._lock:
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM events WHERE seq > ? ORDER BY seq", (after,)).fetchall()
        for row in rows:
            yield Event(*(*row[:10], json.loads(row[10])))

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
