#!/usr/bin/env python3
"""Builds models with random weights in well-known shapes for this machine's GPU and benchmarks them.

    benchmarks/run_h200.py [SHAPE ...] [--positions 0,1024,...] [--no-baselines] [--out benchmarks/h200]

Writes OUT/SHAPE.json as each shape finishes. SHAPE is one of benchmarks/shapes.json; by default all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
POSITIONS = "0,1024,4096,16384,32768"
STEPS = 64
SEED = 7
COMMON = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "eos_token_id": 0,
}


def main() -> None:
    """Run every shape; a shape that fails leaves the others alone, and the exit code says so."""
    options = arguments()
    failed = [shape for shape in options.shapes if not run_shape(shape, options)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def arguments() -> argparse.Namespace:
    """The command line."""
    shapes = json.loads((HERE / "shapes.json").read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(shapes)}")
    parser.add_argument("--positions", default=POSITIONS)
    parser.add_argument("--no-baselines", action="store_true", help="amk alone")
    parser.add_argument("--baseline-seconds", default="150", help="for the baselines of one shape, at most")
    parser.add_argument("--commit", help="of these sources, where they are not in a git checkout")
    parser.add_argument("--gpu", default="auto", help="what to build for")
    parser.add_argument("--out", type=Path, default=HERE / "h200")
    options = parser.parse_args()
    return with_shapes(parser, options, shapes)


def with_shapes(
    parser: argparse.ArgumentParser, options: argparse.Namespace, shapes: dict[str, Any]
) -> argparse.Namespace:
    """The options with the configs of all shapes, and all shapes where none is named; an error for an unknown one."""
    options.configs, options.shapes = shapes, options.shapes or list(shapes)
    for shape in options.shapes:
        if shape not in shapes:
            parser.error(f"no shape {shape!r}; there are {', '.join(shapes)}")
    return options


def run_shape(shape: str, options: argparse.Namespace) -> bool:
    """Build and measure one shape; whether its result was written."""
    with tempfile.TemporaryDirectory() as scratch:
        model, artifact = Path(scratch, shape), Path(scratch, "artifact")
        model.mkdir()
        (model / "config.json").write_text(json.dumps(COMMON | options.configs[shape]))
        build = timed("build", str(model), "--gpu", options.gpu, "--max-seq", str(longest(options.positions)),
                      "--random-weights", str(SEED), "--out", str(artifact))  # fmt: skip
        if build is None:
            return False
        result = Path(scratch, "result.json")
        more = [] if options.no_baselines else ["--baselines", "--baseline-seconds", options.baseline_seconds]
        measured = timed("bench", str(artifact), "--positions", options.positions, "--steps", str(STEPS),
                         "--json", str(result), *more)  # fmt: skip
        return measured is not None and write(shape, options, result, build)


def longest(positions: str) -> int:
    """Positions that the artifact needs room for."""
    return max(int(pos) for pos in positions.split(",")) + STEPS


def timed(*command: str) -> dict[str, Any] | None:
    """Run an amk command; seconds and peak resident bytes of it, or None if it failed."""
    print("amk", command[0], Path(command[1]).name, flush=True)
    started = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "amk", *command], env=environment())
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        return None
    return {"seconds": round(time.monotonic() - started, 2), "peak_bytes": usage.ru_maxrss * 1024}


def environment() -> dict[str, str]:
    """Of a child that runs this checkout's amk."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}


def write(shape: str, options: argparse.Namespace, result: Path, build: dict[str, Any]) -> bool:
    """Keep the result under the shape's name, with what building it took."""
    data = json.loads(result.read_text())
    if options.commit and data["provenance"]["commit"] is None:
        data["provenance"]["commit"] = options.commit
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{shape}.json").write_text(json.dumps({**data, "build": build}, indent=1) + "\n")
    return True


if __name__ == "__main__":
    main()
