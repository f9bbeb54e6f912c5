"""`amk inspect`: the schedule of an artifact, for a person or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import click

from amk.cli.options import artifact_argument, debug_option, json_option
from amk.cli.programs import load_program, program_json


@click.command()
@artifact_argument
@json_option
@debug_option
def inspect(directory: Path, as_json: bool) -> None:
    """Print the schedule in DIR: tasks per SM and lane, hand-offs, bytes and predicted time."""
    program = load_program(directory)
    if as_json:
        click.echo(json.dumps(program_json(program)))
        return
    from amk.schedule_text import describe

    click.echo(describe(program))
