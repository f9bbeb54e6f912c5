#!/usr/bin/env python3
"""SASS instructions of the decode kernel, in all and of each piece of code that tasks share. Needs no GPU.

    benchmarks/code_size.py [SHAPE ...] [--gpu h200] [--json F]

SHAPE is one of benchmarks/shapes.json, all by default. A piece counts what the kernel is smaller by without it, so the
pieces' sum is not the whole: some of it is shared, some of it is the loops around them. Takes seconds per piece.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from run_h200 import COMMON  # noqa: E402

from amk.emit import compile_cubin, emit_source  # noqa: E402
from amk.emit.code_size import instructions  # noqa: E402
from amk.gpus import resolve  # noqa: E402
from amk.lower import lower  # noqa: E402
from amk.model.walker import walk  # noqa: E402

PIECE = re.compile(r"^    if \(.*?\{ (?:return )?(.*?)::run\(.*$", re.MULTILINE)
"""A line of the generated dispatch."""


def sizes(config: dict[str, object], gpu: str) -> dict[str, int]:
    """Instructions of the whole kernel ("") and of each piece of code, by its template."""
    target = resolve(gpu).as_target()
    source = emit_source(lower(walk(config), target, 4096))

    def count(text: str) -> int:
        return instructions(compile_cubin(text, target).cubin)

    whole = count(source)
    pieces = {match[1]: match[0] for match in PIECE.finditer(source)}
    return {"": whole} | {name: whole - count(source.replace(line, "")) for name, line in pieces.items()}


def main() -> None:
    """Print a table."""
    shapes = json.loads((HERE / "shapes.json").read_text())
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("shapes", nargs="*", choices=[*shapes, []], metavar="SHAPE", default=[])
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    for shape in options.shapes or shapes:
        found[shape] = sizes(COMMON | shapes[shape], options.gpu)
        print(f"{shape} on {options.gpu}: {found[shape]['']} instructions", flush=True)
        for name, size in sorted(found[shape].items(), key=lambda item: -item[1]):
            if name:
                print(f"  {size:6} {name}")
    if options.json:
        options.json.write_text(json.dumps({"gpu": options.gpu, "instructions": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
