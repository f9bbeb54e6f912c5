"""The Program that a command line names: an artifact folder, or a program.json on its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.errors import ArtifactError

if TYPE_CHECKING:
    from schedule_ir import Program


def load_program(path: Path) -> Program:
    """Decode the Program of an artifact folder or of a program.json."""
    from schedule_ir.codec import MalformedTablesError, decode, from_json

    file = path / "program.json" if path.is_dir() else path
    try:
        return decode(from_json(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ArtifactError(
            f"{file}: {error.strerror}; name a folder that amk build made, or its program.json"
        ) from error
    except (MalformedTablesError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{file}: not a Program ({error}); build the artifact again") from error


def program_json(program: Program) -> Any:
    """A Program as JSON data."""
    from schedule_ir.codec import encode, to_json

    return json.loads(to_json(encode(program)))
