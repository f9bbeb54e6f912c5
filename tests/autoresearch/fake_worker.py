"""A worker that runs nothing: latency is a formula of the knobs, and a script says where it misbehaves.

    python fake_worker.py SCRIPT.json --parent PID

The script: {"log": file, "latency": {knob: {value: factor}}, "noise": sd, "load_sd": sd, "throttled": [load, ..],
"faults": {"METHOD knob=value": fault}}. `load_sd` is what the addresses of a load do to each side; the pairs of a
throttled load do not count.
A fault is one of the `fault_` methods; for "answer" it is nan or floor. Every executed method is logged.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from amk.errors import DeviceError
from autoresearch.link import RefusedError
from autoresearch.worker import serve


class FakeRungs:
    """Methods of a worker."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.script, self.spec, self.incumbent = script, {}, {}
        self.random = random.Random(0)
        self.offsets = {"A": 1.0, "B": 1.0}
        self.loads = 0

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "begin":
            self.spec = params["candidate"].get("knobs", {})
            self.incumbent = (params["incumbent"] or params["candidate"]).get("knobs", {})
            self.random.seed(json.dumps([self.spec, self.incumbent]) + self.script.get("salt", ""))
        self.log(method)
        self.fault(method)
        time.sleep(self.script.get("seconds", {}).get(method, 0.0))
        handler = getattr(self, f"do_{method}", None)
        result: dict[str, Any] = handler(**params) if handler else {}
        return result

    def log(self, method: str) -> None:
        if "log" in self.script:
            with Path(self.script["log"]).open("a", encoding="utf-8") as file:
                file.write(json.dumps([method, self.spec, os.getpid()]) + "\n")

    def fault(self, method: str) -> None:
        for where, fault in self.script.get("faults", {}).items():
            name, _, condition = where.partition(" ")
            knob, _, value = condition.partition("=")
            if name == method and (not condition or self.spec.get(knob) == int(value)):
                getattr(self, f"fault_{fault}")()

    def fault_hang(self) -> None:
        subprocess.Popen(["sleep", "1000"])  # a child, which must die too
        time.sleep(1000)

    def fault_crash(self) -> None:
        os.kill(os.getpid(), 11)

    def fault_crash_once(self) -> None:
        mark = Path(self.script["log"]).with_suffix(".crashed")
        if not mark.exists():
            mark.touch()
            self.fault_crash()

    def fault_nonsense(self) -> None:
        self.write_raw(b"no JSON at all\n")

    def fault_endless(self) -> None:
        while True:
            self.write_raw(b"x" * (1 << 20))

    def fault_disk(self) -> None:
        while True:
            with (Path(os.environ["TMPDIR"]) / "big").open("ab") as file:
                file.write(bytes(1 << 20))

    def fault_refuse(self) -> None:
        raise RefusedError("validate", "rule 4: a race", "task 1 and task 2")

    def fault_device(self) -> None:
        raise DeviceError("the kernel hung: SM 3, lane compute")

    def fault_infrastructure(self) -> None:
        raise RefusedError("infrastructure", "the checkpoint has changed")

    def write_raw(self, data: bytes) -> None:
        """To the protocol's own descriptor, which `serve` made by duplicating stdout."""
        os.write(self.script["fd"], data)

    def do_against(self, incumbent: dict[str, Any]) -> dict[str, Any]:
        self.incumbent = incumbent.get("knobs", {})
        self.random.seed(json.dumps([self.spec, self.incumbent]) + self.script.get("salt", ""))
        return {}

    def do_lower(self) -> dict[str, Any]:
        known = {k: v for k, v in self.spec.items() if k not in self.script.get("without_effect", ())}
        return {"content": hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()}

    def do_gates(self, **_: Any) -> dict[str, Any]:
        return {"digest": "same", "gates": []}

    def do_floors(self) -> dict[str, Any]:
        return {"floors": [0.01, 0.01]}

    def do_load(self, order: str, shares: list[float]) -> dict[str, Any]:
        placed = random.Random(repr((order, shares)))
        self.offsets = {who: 1 + placed.gauss(0, self.script.get("load_sd", 0.0)) for who in order}
        self.loads += 1
        return {}

    def do_block(self, order: str) -> dict[str, Any]:
        if not self.loads:
            raise DeviceError("nothing is loaded; ask for load first")
        sides = {"A": self.incumbent, "B": self.spec}
        samples = [[k * self.offsets[who] * self.ms(sides[who]) for k in (1, 2)] for who in order]
        if self.script.get("faults", {}).get("answer") == "nan":
            samples[0][0] = -1.0
        if self.script.get("faults", {}).get("answer") == "floor":
            samples[0][0] = 0.001
        valid = self.loads - 1 not in self.script.get("throttled", ())
        return {"samples": samples, "valid": valid, "clocks": {"before": {"sm_mhz": 1980}}}

    def ms(self, setting: dict[str, int]) -> float:
        value = 1.0
        for knob, factors in self.script.get("latency", {}).items():
            value *= factors.get(str(setting.get(knob)), 1.0)
        return value * (1 + self.random.gauss(0, self.script.get("noise", 0.002)))

    def do_energy(self) -> dict[str, Any]:
        return {"candidate": 0.5, "incumbent": 0.6}

    def do_machine(self) -> dict[str, Any]:
        return {"device": "fake"}

    def do_timeline(self, pos: int) -> dict[str, Any]:
        return {"available": True, "pos": pos, "lanes": {"compute": 0.3, "stream": 0.5}}

    def do_probe(self, **_: Any) -> dict[str, Any]:
        return {"device": "fake"}


if __name__ == "__main__":
    script = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # The next free descriptor is the one that the protocol's stream will get.
    probe = os.dup(1)
    os.close(probe)
    script["fd"] = probe
    serve(FakeRungs(script).call)
