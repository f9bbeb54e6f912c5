"""The recorded agent: it gets from zero to a confirmed improvement on the tools alone, and every message is kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import IMPROVED, NOTHING_BETTER
from autoresearch.example_agent import Climber, Move, main, order_of
from autoresearch.study import Study
from autoresearch.transcript import answer_of, markdown
from tests.autoresearch.helpers import ROOT, write_script
from tests.autoresearch.toy import save_toy

SERVER = Path(__file__).parent / "mcp_night.py"
KNOBS = [
    {"name": "depth", "values": [1, 2, 3], "default": 2, "changes": "chunks of the stream lane"},
    {"name": "width", "values": [4, 8], "default": 4, "changes": "warps"},
]


def recorded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_climber_follows_what_helps_and_leaves_what_does_not() -> None:
    climber = Climber(KNOBS, {"depth": 2, "width": 4}, ["depth", "width"])
    first = climber.choose()
    assert first == (Move("depth", 1), {"depth": 3, "width": 4})
    climber.learn(*first, kept=False)
    second = climber.choose()
    assert second == (Move("depth", -1), {"depth": 1, "width": 4})
    climber.learn(*second, kept=True)
    third = climber.choose()  # depth is at its end, so another knob of the new best
    assert third == (Move("width", 1), {"depth": 1, "width": 8})
    climber.learn(*third, kept=False)
    assert climber.choose() is None


def test_the_order_comes_from_lessons_and_the_timeline() -> None:
    assert order_of(KNOBS, [], {"lanes": {"stream": 3}}) == ["depth", "width"]
    assert order_of(KNOBS, [], {"lanes": {"warps": 3}}) == ["width", "depth"]
    assert order_of(KNOBS, [{"knob": "width", "median_log_ratio": -0.1}], {"stream": 3}) == ["width", "depth"]


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A conversation about a fake worker whose best setting is known."""
    pytest.importorskip("mcp")
    folder = tmp_path_factory.mktemp("talk")
    script = write_script(folder, latency={"compute_warps": {"10": 0.9, "12": 0.85}})
    code = main(["--rounds", "3", "--record", str(folder / "r.jsonl"), "--markdown", str(folder / "r.md"),
                 sys.executable, str(SERVER), str(folder), str(script)])  # fmt: skip
    assert code == IMPROVED
    return folder


def test_every_message_is_recorded(talk: Path) -> None:
    entries = recorded(talk / "r.jsonl")
    methods = [entry["message"]["method"] for entry in entries if "method" in entry.get("message", {})]
    assert methods[:3] == ["initialize", "notifications/initialized", "tools/list"]
    calls = [entry["message"]["params"]["name"] for entry in entries if entry.get("message", {}).get("id") and
             entry["message"].get("method") == "tools/call"]  # fmt: skip
    assert calls[:3] == ["describe_space", "best", "timeline"]
    assert calls[-2:] == ["status", "best"]
    asked = {e["message"]["id"] for e in entries if e["from"] == "agent" and "id" in e.get("message", {})}
    answered = {e["message"]["id"] for e in entries if e["from"] == "server" and "id" in e.get("message", {})}
    assert asked == answered


def test_the_agent_got_there_by_the_tools_alone(talk: Path) -> None:
    answers = [answer for answer in map(answer_of, recorded(talk / "r.jsonl")) if answer]
    last = answers[-1]
    assert last["interval"][0] > 1.1
    assert last["candidate"]["knobs"]["compute_warps"] in (10, 12)
    assert "an improvement" in last["note"]
    night = Study(talk / "study").history.nights[1]
    assert night.headline is not None  # measured when the agent asked, and not again at the end
    assert night.headline["trial"] == last["trial"]


def test_the_transcript_says_who_talks_and_hides_no_paths(talk: Path) -> None:
    text = (talk / "r.md").read_text()
    assert "The client is a script" in text
    assert str(talk) not in text
    assert "`submit`" in text
    assert "Latencies were measured" in text


def test_predicted_answers_are_marked_so(tmp_path: Path) -> None:
    """The same command line as on a GPU, but for the mode."""
    pytest.importorskip("mcp")
    toy, out = save_toy(tmp_path / "toy"), tmp_path / "search"
    run = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from amk.cli.main import main; main()"
    server = [sys.executable, "-c", run, "research", "serve", str(toy), "--random-weights", "7", "--gpu", "h200",
              "--max-seq", "100", "--position", "64", "--mode", "predicted", "--trials", "1", "--aa-loads", "4",
              "--out", str(out)]  # fmt: skip
    record = tmp_path / "r.jsonl"
    assert main(["--rounds", "2", "--record", str(record), *server]) in (IMPROVED, NOTHING_BETTER)
    text = markdown(record, server)
    assert "**Every latency here is predicted by the cost model. Nothing was measured.**" in text
    assert Study(out / "predicted").history.nights[1].ended is not None
