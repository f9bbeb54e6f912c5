"""`amk bench`: what an artifact reaches on this machine's GPU, against the read ceiling and what else there is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from amk.artifact import read_artifact
from amk.cli.options import artifact_argument, debug_option
from amk.errors import UsageError
from amk.progress import ConsoleProgress


@click.command()
@artifact_argument
@click.option("--positions", metavar="P,P,...", help="Positions to decode at [default: 0,1024,4096,16384,32768].")
@click.option("--steps", type=click.IntRange(min=1), default=64, show_default=True, help="Tokens per launch.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the result as JSON.")
@click.option("--plot", "plot_file", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw ms/token.")
@click.option("--baselines", is_flag=True, help="Also measure cuBLAS in a CUDA graph and torch.compile (needs torch).")
@click.option("--baseline-seconds", type=click.FloatRange(min=1), default=240.0, show_default=True, help="At most.")
@debug_option
def bench(
    directory: Path,
    positions: str | None,
    steps: int,
    json_file: Path | None,
    plot_file: Path | None,
    baselines: bool,
    baseline_seconds: float,
) -> None:
    """Measure the artifact in DIR: ms/token at positions, percent of the read ceiling, energy, correctness."""
    from amk.bench.baselines import METHODS
    from amk.bench.plot import load_matplotlib, plot
    from amk.bench.report import text_of
    from amk.bench.run import Request, run_bench

    if plot_file:
        load_matplotlib()
    artifact = read_artifact(directory)
    methods = tuple(METHODS) if baselines else ()
    request = Request(parse_positions(positions), steps, methods, baseline_seconds, command_line(sys.argv))
    data = run_bench(artifact, request, ConsoleProgress())
    if json_file:
        json_file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if plot_file:
        plot(data, plot_file)
    click.echo(text_of(data))


def parse_positions(text: str | None) -> list[int] | None:
    """Positions of a comma-separated list. Raises UsageError."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--positions {text!r}: not a list of whole numbers; write for example 0,1024,4096") from None


def command_line(argv: list[str]) -> str:
    """The command as typed, folders left out: a result must not tell where it was made."""
    return " ".join(["amk", *(Path(part).name if "/" in part else part for part in argv[1:])])
