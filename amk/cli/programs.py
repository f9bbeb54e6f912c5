"""The Program that a command line names: an artifact folder, or a Program as one JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.errors import ArtifactError

if TYPE_CHECKING:
    from schedule_ir import Program, Tables


def artifact_folder(path: Path) -> Path | None:
    """The artifact that a path names: its folder, or the program.json in it, which is nothing without its tasks."""
    from amk.artifact import MANIFEST

    if path.is_dir():
        return path
    return path.parent if path.name == "program.json" and (path.parent / MANIFEST).is_file() else None


def load_tables(path: Path) -> Tables:
    """The device tables of an artifact folder, or of a Program as one JSON file (what `inspect --json` prints)."""
    from amk.artifact import read_artifact
    from schedule_ir.codec import MalformedTablesError, from_json

    folder = artifact_folder(path)
    if folder is not None:
        return read_artifact(folder).tables
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArtifactError(f"{path}: {error.strerror}; name a folder made by amk build or a Program's JSON") from error
    except (MalformedTablesError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path}: not a Program ({error}); print one with amk inspect DIR --json") from error


def load_program(path: Path) -> Program:
    """The Program that an artifact's tables, or those of a JSON file, decode to."""
    from schedule_ir.codec import MalformedTablesError, decode

    try:
        return decode(load_tables(path))
    except MalformedTablesError as error:
        raise ArtifactError(f"{path}: its tables do not decode ({error}); build the artifact again") from error


def program_json(program: Program) -> Any:
    """A Program as JSON data."""
    from schedule_ir.codec import encode, to_json

    return json.loads(to_json(encode(program)))
