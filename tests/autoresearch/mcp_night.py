"""An MCP server over a fake worker: `python mcp_night.py FOLDER SCRIPT`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from autoresearch.mcp_server import serve_night
from autoresearch.session import Session
from tests.autoresearch.helpers import settings, supervisor

if __name__ == "__main__":
    made = supervisor(Path(sys.argv[1]), Path(sys.argv[2]), settings(trials=3))
    sys.exit(serve_night(Session(made, None, lambda _: None)))
