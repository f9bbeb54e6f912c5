"""An agent that knows nothing but what `amk research serve` tells it: reads the tools, climbs knob by knob, and prints
the conversation as Markdown.

    python -m autoresearch.example_agent ROUNDS amk research serve DIR --trials 12

Replace `choose` with a language model, and it is an agent like any other.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

SHOWN = 700


class Conversation:
    """Calls tools and prints what was said."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """One call."""
        answer = await self._session.call_tool(tool, arguments)
        text = answer.content[0].text
        print(f"\n**agent:** `{tool}` `{json.dumps(arguments)}`\n\n```json\n{shortened(text)}\n```", flush=True)
        result: dict[str, Any] = json.loads(text)
        return result


def shortened(text: str) -> str:
    """The beginning of an answer."""
    flat = json.dumps(json.loads(text))
    return flat if len(flat) <= SHOWN else flat[:SHOWN] + " ..."


def choose(knobs: list[dict[str, Any]], best: dict[str, int], tried: set[str]) -> dict[str, int] | None:
    """The nearest value of some knob of the best setting that was not tried."""
    for distance in range(1, 9):
        for knob in knobs:
            at = knob["values"].index(best[knob["name"]])
            for place in (at + distance, at - distance):
                if 0 <= place < len(knob["values"]):
                    setting = {**best, knob["name"]: knob["values"][place]}
                    if json.dumps(setting, sort_keys=True) not in tried:
                        return setting
    return None


async def search(session: ClientSession, rounds: int) -> None:
    """From zero to as far as `rounds` submissions go."""
    talk = Conversation(session)
    space = await talk.ask("describe_space")
    default = {knob["name"]: knob["default"] for knob in space["knobs"]}
    best = (await talk.ask("best"))["candidate"]["knobs"]
    await talk.ask("timeline")
    tried = {json.dumps(best, sort_keys=True)}
    for _ in range(rounds):
        setting = choose(space["knobs"], best, tried)
        if setting is None:
            break
        tried.add(json.dumps(setting, sort_keys=True))
        changed = {name: value for name, value in setting.items() if best[name] != value}
        candidate = {"knobs": {name: value for name, value in setting.items() if value != default[name]}}
        if not (await talk.ask("validate", candidate=candidate))["ok"]:
            continue
        verdict = await talk.ask("submit", candidate=candidate, why=f"try {changed}")
        if verdict.get("rung") == "budget":
            break
        if verdict["ok"]:
            best = setting
    await talk.ask("best")
    await talk.ask("status")


async def main() -> None:
    """Start the server that the command line names and talk to it."""
    rounds, command, *arguments = sys.argv[1:]
    parameters = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        for tool in (await session.list_tools()).tools:
            print(f"- `{tool.name}`: {tool.description}")
        await search(session, int(rounds))


if __name__ == "__main__":
    asyncio.run(main())
