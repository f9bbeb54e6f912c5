"""The journal: append-only, once only, durable, indifferent to the wall clock, honest about a full disk."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from amk.errors import UsageError
from autoresearch.errors import JournalError
from autoresearch.history import fold
from autoresearch.journal import Journal
from autoresearch.study import Study
from tests.autoresearch.helpers import ROOT, subject


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path / "journal.sqlite")
    journal.begin_night("s", 1)
    return journal


def test_once_only(journal: Journal) -> None:
    assert journal.add("proposed", {"spec": {}, "proposer": "p"}, trial=1, key="k")
    assert not journal.add("proposed", {"spec": {}, "proposer": "p"}, trial=2, key="k")
    assert not journal.add("proposed", {"spec": {}, "proposer": "p"}, trial=1, key="other")
    for kind, keys in (("verdict", {}), ("passed", {"phase": "smoke"}), ("pair", {"phase": "screen/1", "idx": 0})):
        assert journal.add(kind, {"verdict": "kept"}, trial=1, **keys)  # type: ignore[arg-type]
        assert not journal.add(kind, {"verdict": "rejected"}, trial=1, **keys)  # type: ignore[arg-type]
    assert [event.kind for event in journal.events()] == ["proposed", "verdict", "passed", "pair"]


def test_another_subject_may_try_the_same(journal: Journal) -> None:
    assert journal.add("proposed", {}, trial=1, key="k")
    journal.begin_night("other", 2)
    assert journal.add("proposed", {}, trial=2, key="k")


def test_append_only(journal: Journal, tmp_path: Path) -> None:
    journal.add("note", {"text": "x"})
    with sqlite3.connect(tmp_path / "journal.sqlite") as other:
        for statement in ("UPDATE events SET body = '{}'", "DELETE FROM events"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                other.execute(statement)


def test_a_jumping_wall_clock_changes_nothing(tmp_path: Path) -> None:
    times = iter([1e9, 5e9, -3.0, 2e9])
    journal = Journal(tmp_path / "journal.sqlite", wall=lambda: next(times))
    journal.begin_night("s", 1)
    for index in range(4):
        journal.add("note", {"text": str(index)})
    events = list(journal.events())
    assert [event.body["text"] for event in events] == ["0", "1", "2", "3"]
    assert all(0 <= event.elapsed < 60 for event in events)


def test_elapsed_goes_on_after_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    journal.begin_night("s", 1, elapsed=100.0)
    assert 100 <= journal.elapsed < 110


def test_a_full_disk_is_told_and_loses_nothing(journal: Journal, tmp_path: Path) -> None:
    journal.add("note", {"text": "before"})
    journal._db.execute(f"PRAGMA max_page_count = {journal._db.execute('PRAGMA page_count').fetchone()[0]}")
    with pytest.raises(JournalError, match="free some disk space"):
        journal.add("note", {"text": "x" * 1_000_000})
    journal.close()
    again = Journal(tmp_path / "journal.sqlite")
    assert next(again.events()).body == {"text": "before"}
    again.begin_night("s", 1)
    assert again.add("note", {"text": "after"})


def test_every_added_event_survives_sigkill(tmp_path: Path) -> None:
    code = (
        f"import os, signal, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path; from autoresearch.journal import Journal\n"
        f"j = Journal(Path({str(tmp_path)!r}) / 'journal.sqlite'); j.begin_night('s', 1)\n"
        "for i in range(20): j.add('note', {'text': str(i)})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(Journal(tmp_path / "journal.sqlite").events())) == 20


def test_another_format_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.sqlite").close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalError, match="format 99"):
        Journal(tmp_path / "journal.sqlite")


def test_no_journal_at_all(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"not a database, but long enough to look like a file" * 40)
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(tmp_path / "journal.sqlite")


def test_one_supervisor_at_a_time(tmp_path: Path) -> None:
    one, two = Study(tmp_path), Study(tmp_path)
    with one.exclusive(), pytest.raises(UsageError, match="running here already"), two.exclusive():
        pass
    with two.exclusive():
        pass


def test_history_is_the_same_folded_in_one_go_or_in_parts(tmp_path: Path) -> None:
    study = Study(tmp_path)
    study.journal.begin_night("s", 1)
    study.add("night", {"subject": subject().to_json(), "settings": {}})
    trial = study.propose({"knobs": {}}, "k", "p", None, "why")
    assert trial is not None
    study.add("pair", {"log_ratio": -0.1, "valid": True, "load": 0}, trial=1, phase="screen/1", idx=0)
    study.add("verdict", {"verdict": "rejected", "rung": "screen", "reason": "r"}, trial=1)
    whole = fold(study.journal.events())
    assert whole.trials == study.history.trials
    assert whole.trials[1].loads("screen/1") == [[-0.1]]
