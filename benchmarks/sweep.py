#!/usr/bin/env python3
"""Times knob settings of one shape side by side on this machine's GPU, with random weights.

    benchmarks/sweep.py SHAPE [--positions 0,4096] [--steps 64] [--json F] KNOBS [KNOBS ...]

KNOBS is a comma-separated list such as in_flight=3,stocked=6, or "default". Prints the median ms/token of each setting.
A setting is compared only with the others of the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from run_h200 import COMMON

import amk
from amk.artifact import Artifact
from amk.bench.provenance import provenance
from amk.device import first_device
from amk.lower import Knobs
from amk.model.source import open_model
from amk.runtime.cuda import CudaMachine
from amk.runtime.machine import Launch

SEED = 7
LAUNCHES = 5


def main() -> None:
    """Print a row a setting; write all of them with the machine's provenance."""
    options = arguments()
    results = []
    for text in options.knobs:
        times, artifact = measure(options.shape, knobs_of(text), options.positions, options.steps)
        results.append({"knobs": text, "ms_per_token": times, "machine": machine_of(artifact)})
        print(f"{text:60s} " + " ".join(f"{pos}:{ms:.4f}" for pos, ms in times.items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"shape": options.shape, "results": results}, indent=1) + "\n")


def machine_of(artifact: Artifact) -> dict[str, Any]:
    """GPU, driver, versions and commit of a result."""
    return provenance(artifact, first_device(), {}, " ".join(sys.argv))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape")
    parser.add_argument("knobs", nargs="+")
    parser.add_argument("--positions", default=[0, 4096], type=lambda text: [int(pos) for pos in text.split(",")])
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def knobs_of(text: str) -> Knobs:
    """The setting that a command-line word names."""
    return Knobs(**{name: int(value) for name, value in (part.split("=") for part in text.split(",") if "=" in part)})


def measure(shape: str, knobs: Knobs, positions: list[int], steps: int) -> tuple[dict[int, float], Artifact]:
    """Median ms/token over launches of `steps` tokens from each position, after one to warm up; and what ran."""
    configs = json.loads((Path(__file__).parent / "shapes.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "config.json").write_text(json.dumps(COMMON | configs[shape]))
        artifact = amk.build(
            scratch, max_seq=max(positions) + steps, random_weights=SEED, out=Path(scratch, "out"), knobs=knobs
        )
        machine = CudaMachine(artifact.tables, artifact.cubin, open_model(scratch, SEED))
        try:
            return {pos: median(launch_times(machine, pos, steps)) for pos in positions}, artifact
        finally:
            machine.close()


def launch_times(machine: CudaMachine, pos: int, steps: int) -> list[float]:
    """ms/token of each launch."""
    times = []
    for _ in range(LAUNCHES + 1):
        machine.run(Launch(pos, [17], steps, 0), lambda _: None)
        times.append(machine.last_launch_ms / steps)
    return times[1:]


if __name__ == "__main__":
    main()
