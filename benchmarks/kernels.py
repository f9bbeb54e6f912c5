#!/usr/bin/env python3
"""Times the kernels of several checkouts and knob settings, turn about, over the same loaded weights.

    benchmarks/kernels.py SHAPE [--positions 0,4096] [--turns 3] [--json F] TREE[:KNOBS] [TREE[:KNOBS] ...]

TREE is a checkout of this repository, "." for this one; KNOBS such as in_flight=3,stocked=6. Each kernel is built by
its own tree's code, with random weights. Those whose weights lie elsewhere than the first one's are named and left
out. So a change to the kernels, or a knob that leaves the weights where they are, is compared in a tenth of a second a
kernel, without what loading anew does to addresses. Tokens that differ from the first's are pointed out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from run_h200 import COMMON, HERE, SEED

ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from amk.artifact import Artifact, read_artifact  # noqa: E402
from amk.bench.provenance import provenance  # noqa: E402
from amk.device import first_device  # noqa: E402
from amk.model.source import open_model  # noqa: E402
from amk.runtime.cuda import CudaMachine  # noqa: E402
from amk.runtime.cuda.exchange import difference  # noqa: E402
from amk.runtime.machine import Launch  # noqa: E402

STEPS = 64
LAUNCHES = 4  # of a turn at a position, the first of them to warm up
PROMPT = 17

BUILD = """
import sys
sys.path.insert(0, sys.argv[1])
import amk
from amk.lower import Knobs
model, seed, length, out, gpu = sys.argv[2:7]
knobs = Knobs(**{name: int(value) for name, value in (pair.split("=") for pair in sys.argv[7:])})
amk.build(model, gpu=gpu, max_seq=int(length), random_weights=int(seed), out=out, knobs=knobs)
"""


@dataclass(eq=False)
class Timed:
    """A kernel, its milliseconds per token at each position, and the tokens that it decoded first."""

    name: str
    artifact: Artifact
    times: dict[int, list[float]] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)


def main() -> None:
    """Build all, time them turn about, print a row a kernel."""
    options = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch, "model")
        model.mkdir()
        shapes = json.loads((HERE / "shapes.json").read_text())
        (model / "config.json").write_text(json.dumps(COMMON | shapes[options.shape]))
        kernels = build_all(options.kernels, model, Path(scratch), options)
        same, others = of_the_same_tables(kernels)
        for other, changed in others:
            print(f"{other.name}: another schedule than {same[0].name} ({changed}); time it in a run of its own")
        first = same[0].artifact
        machine = CudaMachine(first.tables, first.cubin, open_model(model, SEED))
        try:
            time_kernels(machine, same, options.positions, options.turns)
        finally:
            machine.close()
    print("\n".join(rows(same)))
    if options.json:
        facts = provenance(first, first_device(), {}, " ".join(sys.argv))
        options.json.write_text(json.dumps(to_json(options.shape, same, facts), indent=1) + "\n")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape")
    parser.add_argument("kernels", nargs="+", metavar="TREE[:KNOBS]")
    parser.add_argument("--positions", default=[0, 4096], type=lambda text: [int(pos) for pos in text.split(",")])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--gpu", default="auto", help="what to build for")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def build_all(names: list[str], model: Path, scratch: Path, options: argparse.Namespace) -> list[Timed]:
    """The artifacts of all, several at a time: a build takes a core."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda i: build(names[i], model, scratch / str(i), options), range(len(names))))


def build(name: str, model: Path, out: Path, options: argparse.Namespace) -> Timed:
    """The artifact that a tree's own code makes, in a process of its own."""
    tree, _, knobs = name.partition(":")
    length = str(max(options.positions) + STEPS)
    command = [sys.executable, "-c", BUILD, str(Path(tree).resolve()), str(model), str(SEED), length, str(out)]
    subprocess.run([*command, options.gpu, *filter(None, knobs.split(","))], check=True)
    return Timed(name, read_artifact(out))


def of_the_same_tables(kernels: list[Timed]) -> tuple[list[Timed], list[tuple[Timed, str]]]:
    """Those that run over what is loaded for the first one, and the others with what differs."""
    changed = [(kernel, difference(kernels[0].artifact.tables, kernel.artifact.tables)) for kernel in kernels]
    return [k for k, what in changed if what is None], [(k, what) for k, what in changed if what is not None]


def time_kernels(machine: CudaMachine, kernels: list[Timed], positions: list[int], turns: int) -> None:
    """Launches of STEPS tokens from each position with each kernel, `turns` times all of them."""
    for turn in range(turns):
        for kernel in kernels:
            machine.use_kernel(kernel.artifact.tables, kernel.artifact.cubin)
            for pos in positions:
                for launch in range(LAUNCHES):
                    result = machine.run(Launch(pos, [PROMPT], STEPS, 0), lambda _: None)
                    if launch:
                        kernel.times.setdefault(pos, []).append(machine.last_launch_ms / STEPS)
                    elif turn == 0:
                        kernel.tokens += result.tokens


def rows(kernels: list[Timed]) -> list[str]:
    """A line a kernel: median and least milliseconds per token at each position."""
    wide = max(len(kernel.name) for kernel in kernels)
    return [
        f"{kernel.name:{wide}s} "
        + " ".join(f"{pos}: {median(times):.4f} ({min(times):.4f})" for pos, times in kernel.times.items())
        + ("" if kernel.tokens == kernels[0].tokens else " other tokens")
        for kernel in kernels
    ]


def to_json(shape: str, kernels: list[Timed], facts: dict[str, Any]) -> dict[str, Any]:
    """Every launch's milliseconds per token, with what they were measured on."""
    results = [
        {"kernel": k.name, "ms_per_token": k.times, "same_tokens": k.tokens == kernels[0].tokens} for k in kernels
    ]
    return {"shape": shape, "results": results, "machine": facts}


if __name__ == "__main__":
    main()
