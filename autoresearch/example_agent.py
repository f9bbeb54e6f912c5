"""An agent that knows only what `amk research serve` tells it, and climbs knob by knob to a confirmed improvement.

    python -m autoresearch.example_agent [--rounds N] [--record F.jsonl] [--markdown F.md] COMMAND ...

COMMAND starts the server, such as `amk research serve DIR --trials 12`. Replace `Climber` with a language model, and it
is an agent like any other. Exits with 0 if the server confirms an improvement over the default, with 10 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoresearch.errors import IMPROVED, NOTHING_BETTER
from autoresearch.transcript import AGENT, SERVER, Recorder, Tapped, markdown

Setting = dict[str, int]


@dataclass(frozen=True)
class Move:
    """A knob one value up (+1) or down (-1) in its list."""

    knob: str
    direction: int


@dataclass
class Climber:
    """Chooses what to submit. `order`: knobs by how likely they matter; `closed`: directions not worth another try."""

    knobs: list[dict[str, Any]]
    best: Setting
    order: list[str]
    closed: set[Move] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    ahead: Move | None = None

    def choose(self) -> tuple[Move, Setting] | None:
        """The move that just helped once more, or the first open one; None if there is none."""
        moves = [Move(name, direction) for name in self.order for direction in (1, -1)]
        for move in [self.ahead, *moves] if self.ahead else moves:
            setting = None if move in self.closed else self._moved(move)
            if setting is not None and _text(setting) not in self.tried:
                self.tried.add(_text(setting))
                return move, setting
        return None

    def _moved(self, move: Move) -> Setting | None:
        values = next(knob["values"] for knob in self.knobs if knob["name"] == move.knob)
        place = values.index(self.best[move.knob]) + move.direction
        return {**self.best, move.knob: values[place]} if 0 <= place < len(values) else None

    def learn(self, move: Move, setting: Setting, kept: bool) -> None:
        """A move that was kept is tried again, and opens all others anew; one that was not closes its direction."""
        if kept:
            self.best, self.ahead, self.closed = setting, move, {Move(move.knob, -move.direction)}
        else:
            self.closed.add(move)
            self.ahead = None


def _text(setting: Setting) -> str:
    return json.dumps(setting, sort_keys=True)


def order_of(knobs: Sequence[dict[str, Any]], lessons: Sequence[dict[str, Any]], timeline: Any) -> list[str]:
    """Knobs that helped in earlier trials first, then those whose description shares words with the longest waits."""
    helped = {x["knob"]: x["median_log_ratio"] for x in lessons if (x.get("median_log_ratio") or 0) < 0}
    seen = _words(json.dumps(timeline))
    shared = {knob["name"]: len(_words(f"{knob['name']} {knob['changes']}") & seen) for knob in knobs}
    return sorted((knob["name"] for knob in knobs), key=lambda name: (helped.get(name, 0.0), -shared[name]))


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z]{4,}", text.lower().replace("_", " ")) if word != "true"}


class Agent:
    """Talks to the server's tools, and notes why."""

    def __init__(self, session: Any, recorder: Recorder) -> None:
        self._session, self._recorder = session, recorder

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """One call of a tool."""
        answer = await self._session.call_tool(tool, arguments)
        text = answer.content[0].text
        result: dict[str, Any] = {"ok": False, "rung": "tool", "reason": text} if answer.isError else json.loads(text)
        print(f"{tool} {json.dumps(arguments)}: {json.dumps(result)[:200]}", flush=True)
        return result

    async def search(self, rounds: int) -> int:
        """From zero to a confirmed improvement, or as far as `rounds` submissions go. The exit code."""
        space = await self.ask("describe_space")
        defaults = {knob["name"]: knob["default"] for knob in space["knobs"]}
        start = await self.ask("best")
        timeline = await self.ask("timeline")
        order = order_of(space["knobs"], space.get("lessons", ()), timeline)
        self._recorder.note(f"I start from the best so far and try one knob at a time, {', '.join(order[:3])} first.")
        climber = Climber(space["knobs"], {**defaults, **start["candidate"].get("knobs", {})}, order)
        for _ in range(rounds):
            if not await self._round(climber, defaults):
                break
        await self.ask("status")
        self._recorder.note("Last, the best directly against the default: that is the number that counts.")
        end = await self.ask("best", confirm=True)
        return IMPROVED if end.get("interval", [0])[0] > 1 else NOTHING_BETTER

    async def _round(self, climber: Climber, defaults: Setting) -> bool:
        """Propose one setting; whether to go on."""
        chosen = climber.choose()
        if chosen is None:
            self._recorder.note("Every direction is closed.")
            return False
        move, setting = chosen
        candidate = {"knobs": {name: value for name, value in setting.items() if value != defaults[name]}}
        why = f"{move.knob} {climber.best[move.knob]} -> {setting[move.knob]}"
        checked = await self.ask("validate", candidate=candidate)
        if not checked["ok"]:
            self._recorder.note(
                f"{why} is refused at {checked['rung']}: {checked['reason'][:200]} No further that way."
            )
            climber.learn(move, setting, kept=False)
            return True
        verdict = await self.ask("submit", candidate=candidate, why=why)
        if verdict.get("rung") in ("budget", "tool"):
            return False
        kept = verdict.get("verdict") == "kept"
        self._recorder.note(f"{why}: {'kept. Once more that way.' if kept else 'not kept. Another one.'}")
        climber.learn(move, setting, kept)
        return True


async def converse(command: Sequence[str], rounds: int, record: Path) -> int:
    """Start the server, search, and leave; every message is in `record`."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(os.environ))
    with record.open("w", encoding="utf-8") as file:
        recorder = Recorder(file)
        async with stdio_client(parameters) as (read, write):
            heard: Any = Tapped(read, SERVER, recorder)
            said: Any = Tapped(write, AGENT, recorder)
            async with ClientSession(heard, said) as session:
                await session.initialize()
                await session.list_tools()
                return await Agent(session, recorder).search(rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, then write the transcript."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12, help="submissions at most")
    parser.add_argument("--record", type=Path, help="every message as JSON lines")
    parser.add_argument("--markdown", type=Path, help="the transcript for people")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if not options.command:
        parser.error("name the command that starts the server, such as amk research serve DIR")
    with tempfile.TemporaryDirectory() as scratch:
        record = options.record or Path(scratch, "record.jsonl")
        code = asyncio.run(converse(options.command, options.rounds, record))
        if options.markdown is not None:
            options.markdown.write_text(markdown(record, options.command), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
