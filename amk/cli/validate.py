"""`amk validate`: the validator's verdict on an artifact or a program."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amk.cli.options import debug_option, json_option
from amk.cli.programs import artifact_folder, load_tables
from amk.errors import RejectedProgramError
from amk.progress import ConsoleProgress

if TYPE_CHECKING:
    from amk.model.graph import ModelGraph
    from schedule_ir.codec import Tables

RULES = 12


@dataclass(frozen=True)
class Subject:
    """What is validated. A program on its own has no compiled kernel, and a model only if one is named."""

    tables: Tables
    graph: ModelGraph | None
    kernel: dict[str, int] | None


@click.command()
@click.argument("path", metavar="DIR|PROGRAM.JSON", type=click.Path(path_type=Path))
@click.option("--rule", type=click.IntRange(1, RULES), metavar="R", help="Report only what breaks this rule.")
@click.option("--model", metavar="MODEL", help="The model that a PROGRAM.JSON is of; an artifact knows its own.")
@json_option
@debug_option
def validate(path: Path, rule: int | None, model: str | None, as_json: bool) -> None:
    """Check that a Program cannot deadlock, race or leave its buffers. Exits with 4 if it is rejected."""
    import validator

    progress = ConsoleProgress()
    folder = artifact_folder(path)
    subject = _program(path, model) if folder is None else _artifact(folder, progress)
    with progress.step(f"Validating {path}"):
        report = validator.validate(subject.tables, subject.graph, rule=rule, kernel=subject.kernel)
    click.echo(json.dumps(report.to_json()) if as_json else report.text())
    if not report.ok:
        rules = sorted({violation.rule for violation in report.violations})
        names = ", ".join(f"{number} ({validator.RULES[number]})" for number in rules)
        raise RejectedProgramError(f"{path}: rejected by rule {names}; the report names the tasks to change")


def _artifact(path: Path, progress: ConsoleProgress) -> Subject:
    from amk.artifact import read_artifact
    from amk.runtime.load import open_checkpoint

    artifact = read_artifact(path)
    kernel: dict[str, Any] = {**artifact.manifest["compiler"]["resources"]}
    kernel.setdefault("shared_bytes", artifact.program.config["shared_bytes"])
    return Subject(artifact.tables, open_checkpoint(artifact, progress).graph, kernel)


def _program(path: Path, model: str | None) -> Subject:
    from amk.model.source import open_model

    graph = None if model is None else open_model(model, random_seed=0).graph
    return Subject(load_tables(path), graph, None)
