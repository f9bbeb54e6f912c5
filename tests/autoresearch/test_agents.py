"""Agents from outside: JSON lines over a process, and MCP with the official client."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from autoresearch.agent_process import answer_line, serve_process
from autoresearch.desk import Desk
from autoresearch.errors import IMPROVED
from autoresearch.export import reward, trial_lines
from autoresearch.study import Study
from autoresearch.supervisor import Supervisor
from tests.autoresearch.helpers import settings, supervisor, write_script

AGENT = Path(__file__).parent / "agent.py"
SERVER = Path(__file__).parent / "mcp_night.py"
LISTED = Path(__file__).parents[2] / "benchmarks" / "propose.py"


@pytest.fixture
def made(tmp_path: Path) -> Supervisor:
    return supervisor(tmp_path, write_script(tmp_path), settings(trials=4))


def drive(made: Supervisor, *arguments: str, agent: Path = AGENT) -> tuple[str, int]:
    """A night driven by the agent; (why it ended, exit code)."""
    with made.night():
        made.prelude()
        reason = serve_process([sys.executable, str(agent), *arguments], Desk(made, "agent"), made.over)
        return reason, made.finish().exit_code


def test_an_agent_finds_an_improvement(made: Supervisor) -> None:
    reason, code = drive(made, "good")
    assert (reason, code) == ("budget of 4 trials used up", IMPROVED)
    assert (made.incumbent.setting or {})["in_flight"] == 8
    proposers = {trial.proposer for trial in made.study.history.trials.values()}
    assert proposers == {"default", "agent"}


def test_listed_settings_are_submitted_in_order(made: Supervisor) -> None:
    reason, code = drive(made, "stocked=8", "in_flight=99", "in_flight=8,stocked=8", agent=LISTED)
    assert (reason, code) == ("the agent ended", IMPROVED)
    trials = list(made.study.history.trials.values())[1:]
    assert [(t.setting["stocked"], t.setting["in_flight"]) for t in trials if t.setting] == [(8, 5), (8, 8)]


@pytest.mark.parametrize(("mode", "words"), [("garbage", "100 requests in a row"), ("flood", "the agent ended")])
def test_a_broken_agent_is_ended(mode: str, words: str, made: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoresearch.agent_process.MAX_LINE", 1 << 21)
    reason, _ = drive(made, mode)
    assert words in reason


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"[1]", "JSON object"),
        (b'{"id": 1, "method": "submit", "params": 3}', "params"),
        (b'{"id": 1, "method": "exec", "params": {}}', "no call 'exec'"),
        (b'{"id": 1, "method": "__init__", "params": {}}', "no call"),
        (b'{"id": 1, "method": "submit", "params": {}}', "candidate"),
        (b"{" * 10_000, ""),
    ],
)
def test_requests_that_are_none(line: bytes, words: str, made: Supervisor) -> None:
    assert words in answer_line(line, Desk(made, "agent"))["error"]


def test_validate_returns_the_witness(tmp_path: Path) -> None:
    made = supervisor(tmp_path, write_script(tmp_path, faults={"validate stocked=8": "refuse"}))
    with made.night():
        answer = Desk(made, "agent").call("validate", {"candidate": {"knobs": {"stocked": 8}}})
    assert answer == {"ok": False, "rung": "validate", "reason": "rule 4: a race", "witness": "task 1 and task 2"}
    assert not made.study.history.trials


def test_mcp_from_zero_to_an_improvement(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    script = write_script(tmp_path)
    transcript = asyncio.run(asyncio.wait_for(converse(tmp_path, script), 60))
    assert transcript["tools"] == ["best", "describe_space", "status", "submit", "timeline", "validate"]
    assert transcript["kept"]["verdict"] == "kept"
    assert transcript["kept"]["factor_over_incumbent"] > 1.05
    assert "no knob called" in transcript["refused"]["reason"]
    assert transcript["best"]["candidate"]["knobs"]["in_flight"] == 8
    study = Study(tmp_path / "study")
    assert study.history.nights[1].ended == {"exit_code": IMPROVED, "reason": "no more proposals"}
    assert (tmp_path / "study" / "report.html").is_file()


async def converse(folder: Path, script: Path) -> dict[str, Any]:
    """What a client hears."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(command=sys.executable, args=[str(SERVER), str(folder), str(script)])
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()

        async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
            answer = await session.call_tool(tool, arguments)
            text: dict[str, Any] = json.loads(answer.content[0].text)  # type: ignore[union-attr]
            return text

        tools = sorted(tool.name for tool in (await session.list_tools()).tools)
        space = await ask("describe_space")
        assert space["mode"] == "measured"
        refused = await ask("submit", candidate={"knobs": {"speed": 11}})
        kept = await ask("submit", candidate={"knobs": {"in_flight": 8}}, why="deeper")
        return {"tools": tools, "refused": refused, "kept": kept, "best": await ask("best")}


def test_export_is_a_training_set(made: Supervisor) -> None:
    drive(made, "good")
    records = [json.loads(line) for line in trial_lines(made.study.history, made.space)]
    assert [record["trial"] for record in records] == [1, 2, 3, 4, 5]
    kept = next(record for record in records if record["verdict"] == "kept")
    assert kept["edits"] == [{"knob": "in_flight", "before": made.space.default["in_flight"], "after": 8}]
    assert kept["reward"] == pytest.approx(-2 * kept["log_ratio"])
    assert len(kept["pairs"]["confirm/1"][0]["samples"]) == 4
    confirmed = kept["pairs"]["confirm/1"]
    assert kept["counted"] == {"pairs": len(confirmed), "loads": len({pair["load"] for pair in confirmed})}
    assert all(record["mode"] == "measured" for record in records)
    trial = made.study.history.trials[2]
    trial.log_ratio, trial.verdict = None, "rejected"
    by_rung = []
    for rung in ("schema", "validate", "gates"):
        trial.rung = rung
        by_rung.append(reward(trial))
    assert by_rung == sorted(by_rung)
    assert -1 <= by_rung[0] < by_rung[-1] < 0
