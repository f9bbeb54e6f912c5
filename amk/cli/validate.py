"""`amk validate`: the validator's verdict on an artifact or a program."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from amk.cli.options import debug_option, json_option
from amk.cli.programs import load_tables
from amk.errors import RejectedProgramError
from amk.progress import ConsoleProgress

RULES = 12


@click.command()
@click.argument("path", metavar="DIR|PROGRAM.JSON", type=click.Path(path_type=Path))
@click.option("--rule", type=click.IntRange(1, RULES), metavar="R", help="Report only what breaks this rule.")
@json_option
@debug_option
def validate(path: Path, rule: int | None, as_json: bool) -> None:
    """Check that a Program cannot deadlock, race or leave its buffers. Exits with 4 if it is rejected."""
    tables = load_tables(path)
    with ConsoleProgress().step(f"Validating {path}"):
        report = import_module("validator").validate(tables)
    if rule is not None:
        report = only(report, rule)
    click.echo(json.dumps(asdict(report)) if as_json else str(report))
    if not report.ok:
        rules = sorted({str(violation.rule) for violation in report.violations})
        raise RejectedProgramError(f"{path}: rejected by rule {', '.join(rules)}; the report names the tasks to change")


def only(report: Any, rule: int) -> Any:
    """The report with the violations of one rule."""
    violations = type(report.violations)(v for v in report.violations if str(v.rule) == str(rule))
    return replace(report, violations=violations, ok=not violations)
