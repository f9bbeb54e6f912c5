"""The Program that a command line names: an artifact folder, or a program.json on its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.errors import ArtifactError

if TYPE_CHECKING:
    from schedule_ir import Program, Tables


def load_tables(path: Path) -> Tables:
    """The device tables of an artifact folder or of a program.json."""
    from schedule_ir.codec import MalformedTablesError, from_json

    file = path / "program.json" if path.is_dir() else path
    try:
        return from_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArtifactError(f"{file}: {error.strerror}; name a folder made by amk build or a program.json") from error
    except (MalformedTablesError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{file}: not a Program ({error}); build the artifact again") from error


def load_program(path: Path) -> Program:
    """The Program that the tables of an artifact folder or of a program.json decode to."""
    from schedule_ir.codec import MalformedTablesError, decode

    try:
        return decode(load_tables(path))
    except MalformedTablesError as error:
        raise ArtifactError(f"{path}: its tables do not decode ({error}); build the artifact again") from error


def program_json(program: Program) -> Any:
    """A Program as JSON data."""
    from schedule_ir.codec import encode, to_json

    return json.loads(to_json(encode(program)))
