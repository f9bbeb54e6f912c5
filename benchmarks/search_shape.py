#!/usr/bin/env python3
"""Searches for a faster schedule of a well-known shape, random weights, 4,096 positions: at the last, of SmolLM2 at the
first ones too.

    benchmarks/search_shape.py SHAPE FOLDER MINUTES [options of amk research run]
    benchmarks/search_shape.py SHAPE FOLDER prepare [options of amk research prepare]
    benchmarks/search_shape.py SHAPE FOLDER serve [options of amk research serve]

SHAPE is one of benchmarks/shapes.json. The first form is one call of scripts/nightly: it ends after MINUTES, and the
next call goes on. The second needs no GPU: it computes what the checks compare with, for a measured search in FOLDER.
The model's config and the search live in FOLDER, which may be copied to another machine between calls.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from run_h200 import COMMON, HERE, SEED

WHAT = ("--random-weights", str(SEED), "--max-seq", "4096")
POSITIONS = {"smollm2-135m": ("--position", "0", "--position", "4032")}
LAST = ("--position", "4032")


def main(shape: str, place: str, how: str, *options: str) -> None:
    """Write the config, then become the command."""
    shapes = json.loads((HERE / "shapes.json").read_text())
    if shape not in shapes:
        sys.exit(f"no shape {shape!r}; there are {', '.join(shapes)}")
    model, search = Path(place, shape), Path(place, "search")
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(COMMON | shapes[shape]))
    options = (*WHAT, *POSITIONS.get(shape, LAST), *options)
    if how in ("prepare", "serve"):
        command = [sys.executable, "-m", "amk", "research", how, str(model), "--out", str(search), *options]
    else:
        command = [str(HERE.parent / "scripts" / "nightly"), str(search), how, str(model), *options]
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.execvpe(command[0], command, {**os.environ, "PYTHONPATH": path, "PYTHON": sys.executable})


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(str(__doc__))
    main(*sys.argv[1:])
