"""`amk validate`: the validator's verdict on an artifact or a program."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from amk.cli.options import debug_option, json_option
from amk.cli.programs import load_program
from amk.errors import RejectedProgramError
from amk.progress import ConsoleProgress


@click.command()
@click.argument("path", metavar="DIR|PROGRAM.JSON", type=click.Path(path_type=Path))
@click.option("--rule", metavar="R", help="Check only this rule.")
@json_option
@debug_option
def validate(path: Path, rule: str | None, as_json: bool) -> None:
    """Check that a Program cannot deadlock, race or leave its buffers. Exits with 4 if it is rejected."""
    import validator

    program = load_program(path)
    with ConsoleProgress().step(f"Validating {path}"):
        report = validator.validate(program, rule=rule)
    click.echo(json.dumps(asdict(report)) if as_json else str(report))
    if not report.ok:
        raise RejectedProgramError(f"{path}: rejected; the report above names the rule and the tasks")
