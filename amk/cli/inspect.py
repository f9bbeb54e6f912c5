"""`amk inspect`: the schedule of an artifact, for a person or as JSON, and where its time goes on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from amk.cli.options import artifact_argument, debug_option, json_option
from amk.cli.programs import load_program, program_json
from amk.errors import UsageError
from amk.progress import ConsoleProgress


@click.command()
@artifact_argument
@click.option("--sm", type=click.IntRange(min=0), metavar="N", help="Also list the tasks of one SM.")
@click.option("--lane", type=click.Choice(["stream", "compute", "epilogue"]), help="With --sm: one of its lanes.")
@click.option("--timeline", type=click.Path(path_type=Path), metavar="FILE", help="Run some tokens; write a trace.")
@click.option("--pos", type=click.IntRange(min=0), default=0, show_default=True, help="Where the timeline starts.")
@click.option("--steps", type=click.IntRange(min=1), default=4, show_default=True, help="Tokens of the timeline.")
@json_option
@debug_option
def inspect(
    directory: Path, sm: int | None, lane: str | None, timeline: Path | None, pos: int, steps: int, as_json: bool
) -> None:
    """Print the schedule in DIR: tasks per SM and lane, hand-offs, bytes and predicted time.

    --timeline FILE runs it on the GPU instead, with clocks in every task: FILE is for ui.perfetto.dev, and a summary of
    who waited for what is printed.
    """
    if lane is not None and sm is None:
        raise UsageError(f"--lane {lane} needs --sm N; say which SM's lane")
    if timeline is not None:
        click.echo(_timeline(directory, timeline, pos, steps, as_json))
        return
    program = load_program(directory)
    if as_json:
        click.echo(json.dumps(program_json(program)))
        return
    from amk.schedule_text import describe

    chosen: dict[str, Any] = {} if sm is None else {"sm": sm, "lane": lane}
    click.echo(describe(program, **chosen))


def _timeline(directory: Path, file: Path, pos: int, steps: int, as_json: bool) -> str:
    from amk.artifact import read_artifact
    from amk.bench.timeline import Timeline
    from amk.bench.timeline_text import summary_of
    from amk.bench.trace_file import write_trace
    from amk.runtime.cuda.trace import collect
    from amk.runtime.load import open_checkpoint

    artifact = read_artifact(directory)
    progress = ConsoleProgress()
    model = open_checkpoint(artifact, progress)
    with progress.step("Running with a timeline"):
        data = collect(artifact, model, pos, steps, progress)
    made = Timeline.of(artifact.program, data.events, data.counts, data.anchors, data.milliseconds, pos)
    write_trace(made, file)
    summary = summary_of(made)
    return json.dumps(summary.as_dict()) if as_json else f"{summary.text()}\nwritten: {file}"
