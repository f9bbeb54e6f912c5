"""An agent that speaks JSON lines: goes from the description of the space to an improvement, then misbehaves.

python agent.py MODE          MODE: good, garbage, flood
"""

from __future__ import annotations

import json
import sys
from typing import Any


def ask(number: int, method: str, **params: Any) -> dict[str, Any]:
    print(json.dumps({"id": number, "method": method, "params": params}), flush=True)
    answer: dict[str, Any] = json.loads(sys.stdin.readline())
    assert answer["id"] == number
    return answer


def good() -> None:
    knobs = ask(1, "describe_space")["result"]["knobs"]
    assert "result" in ask(2, "status")
    assert "error" in ask(3, "submit", candidate={"knobs": {"in_flight": 4}}, latency_ms=0.001)
    assert ask(4, "submit", candidate={"knobs": {"in_flight": 99}})["result"]["rung"] == "schema"
    assert ask(5, "validate", candidate={"knobs": {"in_flight": 6}})["result"] == {"ok": True}
    assert ask(6, "timeline")["result"]["available"]
    number = 10
    for knob in knobs:
        if knob["name"] in ("in_flight", "stocked"):
            for value in knob["values"][-3:]:
                number += 1
                result = ask(number, "submit", candidate={"knobs": {knob["name"]: value}}, why="larger")["result"]
                print(result, file=sys.stderr)
                if result["rung"] == "budget":
                    return
    assert ask(99, "best")["result"]["factor_over_default"] > 1


if __name__ == "__main__":
    if sys.argv[1] == "good":
        good()
    elif sys.argv[1] == "garbage":
        while True:
            print("this is no request", flush=True)
            sys.stdin.readline()
    else:
        while True:
            sys.stdout.write("x" * (1 << 20))
