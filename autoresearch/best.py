"""The best trial of a search as an artifact, with where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amk.artifact import Artifact
from amk.errors import UsageError
from amk.lower import Knobs
from amk.pipeline import build
from amk.progress import Progress
from autoresearch.history import History, Trial, factor
from autoresearch.study import Study
from autoresearch.subject import Subject


def provenance(study: Study, subject: Subject) -> dict[str, Any]:
    """What is known of the best trial: an entry for a table of tuned schedules."""
    history = study.refresh()
    trial = best_trial(study, subject)
    headline = latest_headline(history, trial)
    return {
        "trial": trial.number,
        "mode": subject.mode,
        "gpu": subject.target["name"],
        "model": Path(subject.model).name,
        "max_seq": subject.max_seq,
        "kv_dtype": subject.kv_dtype,
        "workload": subject.workload,
        "kernels_sha256": subject.kernels_sha256,
        "candidate": trial.spec,
        "content": trial.content,
        "lineage": history.lineage.get(subject.key, []),
        "factor_over_default": None if headline is None else _factors(headline),
    }


def _factors(headline: dict[str, Any]) -> dict[str, Any]:
    return {
        "factor": factor(headline["log_ratio"]),
        "low": factor(headline["high"]),
        "high": factor(headline["low"]),
        "pairs": headline["pairs"],
        "loads": headline["loads"],
        "alpha": headline["alpha"],
    }


def latest_headline(history: History, trial: Trial) -> dict[str, Any] | None:
    """The last direct comparison of a trial with the default schedule."""
    found = [n.headline for n in history.nights.values() if n.headline and n.headline["trial"] == trial.number]
    return found[-1] if found else None


def best_trial(study: Study, subject: Subject) -> Trial:
    """The trial to beat. Raises UsageError before the default schedule has passed."""
    best = study.history.incumbent(subject.key)
    if best is None:
        raise UsageError(f"{study.folder}: the default schedule has not passed yet; run the search first")
    return best


def export_artifact(study: Study, subject: Subject, out: Path, progress: Progress) -> Artifact:
    """Build the best trial at `out`: the same pipeline, proof included, as any build."""
    trial = best_trial(study, subject)
    if trial.setting is None:
        raise UsageError(f"trial {trial.number} is a whole Program; its tables are in amk research export")
    return build(
        subject.model, gpu=subject.target["name"], max_seq=subject.max_seq, out=out, kv_dtype=subject.kv_dtype,
        random_weights=subject.random_seed, force=True, knobs=Knobs(**trial.setting), progress=progress,
    )  # fmt: skip
