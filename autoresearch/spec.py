"""A candidate as data: a knob setting or a whole Program, and the hashes that identify it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autoresearch.errors import ProposalError
from autoresearch.space import Setting, Space
from schedule_ir import Tables
from schedule_ir.codec import MalformedTablesError, from_json

MAX_PROGRAM_BYTES = 64 << 20


@dataclass(frozen=True)
class Spec:
    """What a proposer submitted: `setting` of the knobs, or `program`, device tables as one JSON text."""

    setting: Mapping[str, int] | None = None
    program: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        if self.program is not None:
            return {"program": self.program}
        return {"knobs": dict(self.setting or {})}

    @cached_property
    def key(self) -> str:
        """Identifies the submission: equal submissions have equal keys."""
        return digest(json.dumps(self.to_json(), sort_keys=True))

    def __str__(self) -> str:
        if self.program is not None:
            return f"program {self.key[:12]}"
        return ", ".join(f"{name} {value}" for name, value in (self.setting or {}).items())


def digest(text: str) -> str:
    """sha256 (hex) of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def spec_of(data: Any, space: Space, base: Setting | None = None) -> Spec:
    """The schema rung: {"knobs": {..}} or {"program": ..} and nothing else. Raises ProposalError."""
    if not isinstance(data, Mapping):
        raise ProposalError(f'a candidate is {{"knobs": {{..}}}} or {{"program": ..}}, not {type(data).__name__}')
    if set(data) == {"knobs"} and isinstance(data["knobs"], Mapping):
        return Spec(setting=space.complete(data["knobs"], base))
    if set(data) == {"program"}:
        return Spec(program=_program_text(data["program"]))
    keys = ", ".join(sorted(map(str, data))) or "nothing"
    raise ProposalError(
        f'a candidate is {{"knobs": {{..}}}} or {{"program": ..}} and nothing else; this one has {keys}'
    )


def _program_text(program: Any) -> str:
    text = program if isinstance(program, str) else json.dumps(program)
    if len(text) > MAX_PROGRAM_BYTES:
        raise ProposalError(f"program of {len(text)} bytes; at most {MAX_PROGRAM_BYTES}")
    try:
        from_json(text)
    except MalformedTablesError as error:
        raise ProposalError(str(error)) from error
    return text


def content_hash(tables: Tables) -> str:
    """Identifies what runs: the device tables, without the note of the knobs that they came from."""
    header = {name: value for name, value in tables.header.items() if name != "knobs"}
    hashed = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for array in (tables.records, tables.ranges):
        hashed.update(np.ascontiguousarray(array, np.int32).tobytes())
    return hashed.hexdigest()
