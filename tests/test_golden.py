"""The Program and the generated source of a small model, pinned: a change of either shows as a diff to be looked at.

After a change that is meant: pytest tests/test_golden.py --update-golden
"""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest

from amk.emit import emit_source
from amk.lower import lower
from amk.model.walker import walk
from schedule_ir import Program, Target, encode
from tests.model.builders import CONFIG

GOLDEN = Path(__file__).parent / "golden"
CASES: dict[str, tuple[Target, str]] = {
    "sm80": (Target("small-80", "sm_80", "sm80", 6, 163 << 10, 1 << 20, 1 << 30, 1e12), "fp16"),
    "sm90": (Target("small-90", "sm_90", "sm90", 6, 227 << 10, 1 << 20, 1 << 30, 1e12), "fp16"),
    "sm120": (Target("small-120", "sm_120", "sm120", 6, 99 << 10, 1 << 20, 1 << 30, 1e12), "fp32"),
}
"""GPUs of six SMs: every op is there, and a person can read all of it."""


def program(case: str) -> Program:
    target, kv_dtype = CASES[case]
    return lower(walk(CONFIG, None), target, 256, kv_dtype)


def program_text(program: Program) -> str:
    """The device tables as JSON, one record to a line."""
    tables = encode(program)
    header = json.dumps(tables.header, indent=1)
    records = ",\n".join(json.dumps(row) for row in tables.records.tolist())
    return f'{{"header": {header},\n"records": [\n{records}\n],\n"ranges": {json.dumps(tables.ranges.tolist())}}}\n'


def compare(name: str, text: str, update: bool) -> None:
    """Compare a text with a golden file, or rewrite the file."""
    path = GOLDEN / name
    if update:
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    diff = difflib.unified_diff(expected.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="", n=1)
    lines = list(diff)[:60]
    assert not lines, "\n".join([*lines, "if this is meant: pytest tests/test_golden.py --update-golden"])


def test_program(update_golden: bool) -> None:
    compare("sm90.program.json", program_text(program("sm90")), update_golden)


@pytest.mark.parametrize("case", CASES)
def test_source(case: str, update_golden: bool) -> None:
    compare(f"{case}.cu", emit_source(program(case)), update_golden)


def test_the_golden_program_has_every_op() -> None:
    """So that no op can change unseen."""
    from schedule_ir import REGISTRY

    used = {variant.op for variant in program("sm90").variants}
    assert used == set(REGISTRY)


def test_a_change_shows_as_a_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_golden.GOLDEN", tmp_path)
    (tmp_path / "x.cu").write_text("a\nb\n")
    with pytest.raises(AssertionError, match=r"(?s)-b\n.*\+c\n.*--update-golden"):
        compare("x.cu", "a\nc\n", update=False)
    compare("x.cu", "a\nc\n", update=True)
    assert (tmp_path / "x.cu").read_text() == "a\nc\n"
