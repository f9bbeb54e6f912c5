"""What an MCP client and its server said: every message as a JSON line, and the whole as Markdown for people."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Self

AGENT, SERVER = "agent", "server"
SHOWN = 900
"""Characters of an answer that the Markdown shows; the JSON lines have all of it."""


class Recorder:
    """Writes {"at": seconds, "from": .., "message": JSON-RPC} a line, or a "note" of what the agent makes of it."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._started = file, time.monotonic()

    def message(self, sender: str, message: Any) -> None:
        """A message as it crosses the pipe."""
        self._write({"from": sender, "message": message})

    def note(self, text: str) -> None:
        """The agent's reason for what comes next."""
        self._write({"from": AGENT, "note": text})

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(json.dumps({"at": round(time.monotonic() - self._started, 2), **entry}) + "\n")
        self._file.flush()


class Tapped:
    """One direction of an MCP stream pair; everything that passes is written down."""

    def __init__(self, stream: Any, sender: str, recorder: Recorder) -> None:
        self._stream, self._sender, self._recorder = stream, sender, recorder

    async def send(self, item: Any) -> None:
        """Pass a message on."""
        self._tap(item)
        await self._stream.send(item)

    async def receive(self) -> Any:
        """The next message."""
        item = await self._stream.receive()
        self._tap(item)
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        item = await self._stream.__anext__()
        self._tap(item)
        return item

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._stream.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _tap(self, item: Any) -> None:
        if isinstance(item, Exception):
            self._recorder.message(self._sender, {"error": str(item)})
        else:
            data = item.message.model_dump(mode="json", by_alias=True, exclude_none=True)
            self._recorder.message(self._sender, data)


# Markdown


def markdown(path: Path, command: Sequence[str]) -> str:
    """The transcript of a recording. Says first what it is of: who talks, and whether anything was measured."""
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines = ["# An agent and `amk research serve`", "", _preamble(entries, command), ""]
    for entry in entries:
        lines += _entry_lines(entry)
    return "\n".join(lines) + "\n"


def _preamble(entries: Sequence[dict[str, Any]], command: Sequence[str]) -> str:
    modes = {answer["mode"] for answer in map(answer_of, entries) if answer and "mode" in answer}
    told = {
        frozenset({"predicted"}): "**Every latency here is predicted by the cost model. Nothing was measured.**",
        frozenset({"measured"}): "Latencies were measured on the GPU that the server ran on.",
    }
    what = told.get(frozenset(modes), f"**Modes: {', '.join(sorted(modes)) or 'unknown'}.**")
    return (
        f"{what}\n\nThe client is a script, `autoresearch/example_agent.py`: it knows the MCP handshake, the tools'\n"
        f"descriptions and their answers, and nothing else. The server was started as\n`{_without_places(command)}`.\n"
        "Answers are shortened here; the recording beside this file has every message."
    )


def _without_places(command: Sequence[str]) -> str:
    """A command line in which absolute paths are names."""
    return " ".join(Path(word).name if word.startswith("/") else word for word in command)


def answer_of(entry: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON object in a tool's answer, if this entry is one."""
    content = entry.get("message", {}).get("result", {}).get("content")
    if not isinstance(content, list) or not content or "text" not in content[0]:
        return None
    try:
        answer = json.loads(content[0]["text"])
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _entry_lines(entry: dict[str, Any]) -> Iterator[str]:
    message, at = entry.get("message", {}), f"{entry['at']:.1f} s"
    if "note" in entry:
        yield from (f"*{entry['note']}*", "")
    elif message.get("method") == "tools/call":
        call = message["params"]
        arguments = json.dumps(call.get("arguments") or {})
        yield from (f"**agent** ({at}): `{call['name']}` `{arguments}`", "")
    elif message.get("method") in ("initialize", "tools/list"):
        yield from (f"**agent** ({at}): {message['method']}", "")
    elif (tools := message.get("result", {}).get("tools")) is not None:
        yield f"**server** ({at}):"
        yield from ("", *(f"- `{tool['name']}`: {' '.join(tool['description'].split())}" for tool in tools), "")
    elif (instructions := message.get("result", {}).get("instructions")) is not None:
        yield from (f"**server** ({at}): {' '.join(instructions.split())}", "")
    elif "result" in message:
        yield from (f"**server** ({at}):", "", "```json", _shortened(entry), "```", "")


def _shortened(entry: dict[str, Any]) -> str:
    answer = answer_of(entry)
    text = json.dumps(entry["message"]["result"] if answer is None else answer)
    return text if len(text) <= SHOWN else text[:SHOWN] + " ..."
