"""From a confirmed improvement in a journal to an entry of the table of tuned schedules (amk/tuned.json)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import amk
from amk.emit.compile import kernel_sources_sha256
from amk.errors import UsageError
from amk.tuned import Entry, entry_of, parse, with_entry, write_table
from autoresearch.best import best_trial, latest_headline
from autoresearch.history import History, Night, factor
from autoresearch.study import Study
from autoresearch.subject import Subject

TABLE = Path(amk.__file__).parent / "tuned.json"


def adopt(study: Study, subject: Subject, table: Path, commit: str | None) -> Entry:
    """Put the best schedule of a measured search into a table, in the place of what it replaces.

    `commit` is that of the sources where the journal does not know it. Raises UsageError if there is nothing that was
    measured, confirmed and is of these kernels.
    """
    entry = entry_from(study, subject, commit)
    try:
        entries = parse(table.read_text(encoding="utf-8"), str(table)) if table.exists() else ()
        write_table(table, with_entry(entries, entry))
    except OSError as error:
        raise UsageError(f"{table}: {error.strerror}; name another file with --table") from error
    return entry


def entry_from(study: Study, subject: Subject, commit: str | None) -> Entry:
    """The entry, its content checked as if it had been read."""
    history = study.refresh()
    if subject.mode != "measured":
        raise UsageError(f"{study.folder}: its latencies are predicted; the table holds what was measured")
    if subject.kernels_sha256 != kernel_sources_sha256():
        raise UsageError(f"{study.folder}: measured with other kernels than these; search again")
    trial = best_trial(study, subject)
    headline = latest_headline(history, trial)
    if trial.setting is None or headline is None or headline["high"] >= 0:
        raise UsageError(f"{study.folder}: no setting of knobs is confirmed to be faster than the default")
    night = next(n for n in history.nights.values() if n.headline is headline)
    data = {
        "gpu": subject.target["name"],
        "shape": dict(subject.shape),  # the model may lie on another machine
        "kv_dtype": subject.kv_dtype,
        "knobs": dict(trial.setting),
        "evidence": _evidence(history, subject, night, headline, commit),
    }
    try:
        return entry_of(data)
    except ValueError as error:
        raise UsageError(f"{study.folder}: {error}") from error


def _evidence(
    history: History, subject: Subject, night: Night, headline: dict[str, Any], commit: str | None
) -> dict[str, Any]:
    default = history.trials[headline["baseline"]].setting or {}
    return {
        "factor": factor(headline["log_ratio"]),
        "low": factor(headline["high"]),
        "high": factor(headline["low"]),
        "alpha": float(headline["alpha"]),
        "pairs": headline["pairs"],
        "loads": headline["loads"],
        "default": dict(default),
        "workload": subject.workload,
        "max_seq": subject.max_seq,
        "model": Path(subject.model).name,
        "date": headline["date"],
        "commit": _commit(night, commit),
        "amk": str(night.code.get("amk") or amk.__version__),
        "kernels_sha256": subject.kernels_sha256,
        "machine": dict(headline["machine"]),
    }


def _commit(night: Night, given: str | None) -> str:
    found = str(night.code.get("commit") or given or "")
    if not re.fullmatch(r"[0-9a-f]{40}\+?", found):
        raise UsageError(
            "the night did not run in a git checkout; say which sources it ran with --commit HASH (40 hex)"
        )
    return found
