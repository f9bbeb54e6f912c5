"""Child processes: what they printed counts, whatever became of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from amk.bench.child import parse_rows, run_child

ECHO = "from amk.bench.child import emit, read_request\nemit(**read_request())\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module called `benched` that children can run."""
    monkeypatch.syspath_prepend(tmp_path)
    root = Path(__file__).parent.parent.parent
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{root}")
    return tmp_path / "benched.py"


def test_request_and_rows(module: Path) -> None:
    module.write_text(f"print('noise')\n{ECHO}")
    assert run_child("benched", {"pos": 3}, 60) == ([{"pos": 3}], None)


def test_rows_before_a_failure_count(module: Path) -> None:
    module.write_text(f"{ECHO}raise ValueError('no such thing')\n")
    assert run_child("benched", {"pos": 3}, 60) == ([{"pos": 3}], "ValueError: no such thing")


def test_rows_before_the_time_is_up_count(module: Path) -> None:
    module.write_text(f"{ECHO}import time; time.sleep(60)\n")
    rows, problem = run_child("benched", {"pos": 3}, 3)
    assert rows == [{"pos": 3}]
    assert problem == "not finished after 3 s"


def test_only_objects_are_rows() -> None:
    assert parse_rows('[1]\n{"a": 1}\n{"b"\n3\n') == [{"a": 1}]
