# ruff: noqa: INP001 (a script, not a package)
"""False rejects: real model shapes (six layers of each) x every GPU of the table x knobs, in a seeded random order.

    python benchmarks/validator/lowerings.py [--seconds 600] [--seed 1] [--out FILE]

Each lowering that the lowering itself allows must be accepted by all twelve rules. Writes what was tried and rejected.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from amk.errors import AmkError  # noqa: E402
from amk.gpus import table  # noqa: E402
from amk.lower import Knobs, lower  # noqa: E402
from schedule_ir import encode  # noqa: E402
from tests.validator.programs import graph  # noqa: E402
from validator import validate  # noqa: E402

SHAPES = {
    "SmolLM2-135M": (576, 1536, 9, 3, 64), "Qwen2.5-0.5B": (896, 4864, 14, 2, 64),
    "TinyLlama-1.1B": (2048, 5632, 32, 4, 64),
    "Llama-3.2-1B": (2048, 8192, 32, 8, 64), "Llama-3.2-3B": (3072, 8192, 24, 8, 128),
    "Llama-3.1-8B": (4096, 14336, 32, 8, 128), "Qwen2.5-7B": (3584, 18944, 28, 4, 128),
}  # fmt: skip
KNOBS = {
    "default": Knobs(), "4 warps": Knobs(compute_warps=4), "16 k-steps": Knobs(chunk_ksteps=16),
    "down in 2": Knobs(down_split=2), "down in 4": Knobs(down_split=4),
    "8 splits": Knobs(max_splits=8, min_split_rows=128),
    "whole units": Knobs(down_pieces=1), "down in 3 pieces": Knobs(down_pieces=3),
    "down in 8 pieces": Knobs(down_pieces=8), "2 parts of 4 pieces": Knobs(down_split=2, down_pieces=4),
    "1 split": Knobs(max_splits=1), "1 reduction slot": Knobs(reduce_slots=1), "6 stages": Knobs(ring_stages=6),
}  # fmt: skip
LENGTHS = (512, 4096, 131072)
LAYERS = 6
"""With few layers an SM may attend in the last one only: then nothing orders its acquire, which is a true reject."""


def main() -> None:
    """Tries settings until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    settings = list(itertools.product(SHAPES, table(), KNOBS, LENGTHS))
    random.Random(options.seed).shuffle(settings)
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    result = {
        "commit": commit,
        "layers": LAYERS,
        "seed": options.seed,
        "settings": len(settings),
        "accepted": 0,
        "not_lowered": 0,
        "rejected": [],
    }
    end = time.monotonic() + options.seconds
    out = options.out or ROOT / f"benchmarks/validator/lowerings-seed{options.seed}.json"
    for setting in settings:
        if time.monotonic() > end:
            break
        verdict = attempt(*setting)
        if verdict in ("accepted", "not_lowered"):
            result[verdict] += 1  # type: ignore[operator]
        else:
            result["rejected"].append([*setting, verdict])  # type: ignore[union-attr]
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(result)


def attempt(shape: str, gpu: str, knobs: str, length: int) -> str:
    """ "accepted", "not_lowered", or the first violation."""
    hidden, intermediate, heads, kv_heads, head_dim = SHAPES[shape]
    biased = shape.startswith("Qwen")
    model = graph(hidden, intermediate, LAYERS, heads, kv_heads, head_dim, 32000, bias=biased)
    target = table()[gpu].as_target()
    try:
        program = lower(model, target, length, "fp16", KNOBS[knobs])
    except AmkError:
        return "not_lowered"
    report = validate(encode(program), model, target)
    return "accepted" if report.ok else f"rule {report.violations[0].rule}: {report.violations[0].message}"


if __name__ == "__main__":
    main()
