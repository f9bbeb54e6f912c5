"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click


@dataclass
class Settings:
    """What holds for the whole command line; click carries it as the context's `obj`."""

    debug: bool = False


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    settings = context.find_root().obj
    if value and isinstance(settings, Settings):
        settings.debug = True


def debug_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--debug, before the command's name or after it."""
    option = click.option(
        "--debug",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_set_debug,
        help="Show the traceback of an error.",
    )
    return option(command)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--json: the same facts as one JSON document on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(command)


def artifact_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """DIR: a folder that `amk build` made. Whether it is one is for the artifact's reader to say."""
    return click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))(command)
