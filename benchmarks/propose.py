#!/usr/bin/env python3
"""An agent for `amk research run --proposer`: submits the settings that it is given, one after the other.

    amk research run DIR --proposer "benchmarks/propose.py in_flight=4,stocked=5 down_pieces=2"

Where it ends the night ends. For settings that were found elsewhere, such as by benchmarks/sweep.py.
"""

from __future__ import annotations

import json
import sys


def main(*settings: str) -> None:
    """Submit each setting as a JSON line, and wait for its verdict; a refused one ends nothing."""
    for number, setting in enumerate(settings):
        knobs = {name: int(value) for name, value in (pair.split("=") for pair in setting.split(","))}
        params = {"candidate": {"knobs": knobs}, "why": setting}
        print(json.dumps({"id": number, "method": "submit", "params": params}), flush=True)
        if not sys.stdin.readline():
            return


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(str(__doc__))
    main(*sys.argv[1:])
