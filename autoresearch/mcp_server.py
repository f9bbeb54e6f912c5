"""`amk research serve`: the desk as an MCP server over stdio, with the official SDK."""

from __future__ import annotations

import threading
from typing import Any

from amk.errors import AmkError, UsageError
from autoresearch.desk import Desk
from autoresearch.errors import NOTHING_BETTER, ProposalError
from autoresearch.report import write_report
from autoresearch.session import Session

INSTRUCTIONS = """Search for a faster schedule of a CUDA kernel that decodes tokens. Start with describe_space.
A candidate is {"knobs": {NAME: VALUE, ...}}; knobs that you leave out have their default. validate is cheap and returns
witnesses; submit takes it up the whole ladder (proof, compile, correctness, paired measurement against the best so far)
and returns the verdict. You never report latencies: they are measured, or predicted by a cost model where `mode` says
so. Move one or two knobs at a time from best, read the reasons of refusals, use timeline to see where the time goes,
stop when status says that the budget is used up, and end with best(confirm=true)."""


def make_server(desk: Desk) -> Any:
    """The server with its six tools."""
    try:
        from mcp.server.fastmcp import FastMCP
    except ImportError:
        raise UsageError("amk research serve needs the MCP SDK; pip install 'amk[research]'") from None
    server = FastMCP("amk-research", instructions=INSTRUCTIONS, log_level="WARNING")
    lock = threading.Lock()

    async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        import anyio

        return await anyio.to_thread.run_sync(_locked, lock, desk, method, params)

    async def describe_space() -> dict[str, Any]:
        """Every knob with its values, default and what it changes; the objective; lessons of earlier trials."""
        return await ask("describe_space", {})

    async def validate(candidate: dict[str, Any]) -> dict[str, Any]:
        """Whether {"knobs": {..}} lowers, is proved and compiles. If not: the rung, the reason and the witness."""
        return await ask("validate", {"candidate": candidate})

    async def submit(candidate: dict[str, Any], why: str = "") -> dict[str, Any]:
        """Check and measure {"knobs": {..}} against the best so far; waits for the verdict (seconds to minutes)."""
        return await ask("submit", {"candidate": candidate, "why": why})

    async def status() -> dict[str, Any]:
        """Budgets, verdicts so far, and the last trials."""
        return await ask("status", {})

    async def best(confirm: bool = False) -> dict[str, Any]:
        """The best candidate so far and its factor over the default schedule. With confirm=true it is measured against
        the default directly, in a fresh process: the factor with its confidence interval, to end a search with."""
        return await ask("best", {"confirm": confirm})

    async def timeline(pos: int | None = None) -> dict[str, Any]:
        """Where a token's time goes in the best schedule, at a position."""
        return await ask("timeline", {"pos": pos})

    for tool in (describe_space, validate, submit, status, best, timeline):
        server.tool()(tool)
    return server


def _locked(lock: threading.Lock, desk: Desk, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """One call at a time; what the agent did wrong is an answer, not the end of the server."""
    with lock:
        try:
            return desk.call(method, params)
        except (ProposalError, AmkError) as error:
            return {"ok": False, "reason": str(error)}


def serve_night(session: Session) -> int:
    """Serve until the client leaves, then end the night: winner against default, report. The exit code."""
    supervisor = session.supervisor
    ready = threading.Event()

    def prepare() -> None:
        supervisor.prelude()
        supervisor.finish_pending()
        ready.set()

    try:
        with supervisor.night():
            make_server(Desk(supervisor, "agent", prepare)).run("stdio")
            if not ready.is_set():
                return NOTHING_BETTER
            return supervisor.finish().exit_code
    finally:
        write_report(supervisor.study, supervisor.subject)
