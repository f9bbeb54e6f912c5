#!/usr/bin/env python3
"""Where a token's time goes: traces models with random weights in well-known shapes on this machine's GPU.

    benchmarks/timelines.py [SHAPE ...] [--positions 0,4096] [--steps 2] [--out benchmarks/h200/timelines]

Writes OUT/SHAPE-POSITION.txt, the summary that `amk inspect --timeline` prints, and OUT/SHAPE-POSITION.json.gz for
ui.perfetto.dev. SHAPE is one of benchmarks/shapes.json; by default all of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from run_h200 import COMMON, HERE, SEED, environment, timed, with_shapes

HEADER = "{shape} from position {position}, commit {commit}\n\n"


def main() -> None:
    """Trace every shape at every position; the exit code says so where one could not be built."""
    options, failed = arguments(), []
    options.out.mkdir(parents=True, exist_ok=True)
    for shape in options.shapes:
        with tempfile.TemporaryDirectory() as scratch:
            model, artifact = Path(scratch, shape), Path(scratch, "artifact")
            model.mkdir()
            (model / "config.json").write_text(json.dumps(COMMON | options.configs[shape]))
            length = str(max(options.positions) + options.steps)
            build = ("--max-seq", length, "--random-weights", str(SEED), "--out", str(artifact))
            if timed("build", str(model), *build) is None:
                failed.append(shape)
                continue
            for position in options.positions:
                trace(shape, position, artifact, options)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def arguments() -> argparse.Namespace:
    """The command line."""
    shapes = json.loads((HERE / "shapes.json").read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(shapes)}")
    parser.add_argument("--positions", default=[0, 4096], type=lambda text: [int(pos) for pos in text.split(",")])
    parser.add_argument("--steps", type=int, default=2, help="tokens of a trace")
    parser.add_argument("--commit", default="unknown", help="of these sources")
    parser.add_argument("--out", type=Path, default=HERE / "h200" / "timelines")
    return with_shapes(parser, parser.parse_args(), shapes)


def trace(shape: str, position: int, artifact: Path, options: argparse.Namespace) -> None:
    """Run the artifact with a timeline; keep the trace and the summary."""
    file = options.out / f"{shape}-{position}.json.gz"
    command = [sys.executable, "-m", "amk", "inspect", str(artifact), "--timeline", str(file),
               "--pos", str(position), "--steps", str(options.steps)]  # fmt: skip
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)
    summary = done.stdout.rpartition("\nwritten: ")[0]
    print(f"\n{shape} from position {position}\n{summary}", flush=True)
    header = HEADER.format(shape=shape, position=position, commit=options.commit)
    file.with_name(f"{shape}-{position}.txt").write_text(header + summary + "\n")


if __name__ == "__main__":
    main()
