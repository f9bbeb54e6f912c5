"""`amk verify`: the correctness gates of the search, for the kernel in an artifact."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from amk.cli.options import artifact_argument, debug_option, json_option
from amk.progress import ConsoleProgress

if TYPE_CHECKING:
    from amk.verify import GateResult

FAILED = 1


@click.command()
@artifact_argument
@click.option("--device", type=click.Choice(["auto", "cuda", "cpu"]), default="auto", show_default=True)
@click.option("--quick", is_flag=True, help="Only the gates that run before every measurement of a search.")
@click.option("--seed", type=click.IntRange(min=0), metavar="S", help="Seed of the token ids [default: a fresh one].")
@json_option
@debug_option
def verify(directory: Path, device: str, quick: bool, seed: int | None, as_json: bool) -> None:
    """Check the kernel in DIR: against an oracle, with canaries, poisoned inputs, repeats and a latency floor.

    Exits with 0 if every gate passes, with 1 if one fails.
    """
    chosen = secrets.randbelow(1 << 31) if seed is None else seed
    results = _verify(directory, device, quick, chosen)
    passed = all(result.ok is not False for result in results)
    if as_json:
        gates = [asdict(result) for result in results]
        click.echo(json.dumps({"passed": passed, "seed": chosen, "gates": gates}))
    else:
        _print(results, chosen)
    if not passed:
        raise click.exceptions.Exit(FAILED)


def _verify(directory: Path, device: str, quick: bool, seed: int) -> Sequence[GateResult]:
    from amk.verify.artifact import verify_artifact

    return verify_artifact(directory, device, quick, seed, ConsoleProgress())


def _print(results: Sequence[GateResult], seed: int) -> None:
    words = {True: ("pass", "green"), False: ("FAIL", "red"), None: ("n/a", "yellow")}
    width = max(len(result.name) for result in results)
    for result in results:
        text, colour = words[result.ok]
        click.echo(f"{click.style(f'{text:4}', fg=colour)}  {result.name:{width}}  {result.detail}")
    click.echo(f"seed {seed}")
