# ruff: noqa: INP001 (a script, not a package)
"""How long the validator takes, and how much memory: `python benchmarks/validator/speed.py [1b|3b|8b] [GPU]`.

Prints the tasks, then the processor time of the whole validation (decoding and the import of Z3 included) and the
process's peak memory in MiB. The tables are made by another process, so that only they and the validator are in memory.
"""

from __future__ import annotations

import multiprocessing
import pickle
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

SHAPES = {
    "1b": (2048, 8192, 16, 32, 8, 64, 128256),
    "3b": (3072, 8192, 28, 24, 8, 128, 128256),
    "8b": (4096, 14336, 32, 32, 8, 128, 128256),
}


def make(name: str, gpu: str) -> bytes:
    """Pickled (tables, model, target)."""
    from amk.gpus import lookup
    from amk.lower import lower
    from schedule_ir import encode
    from tests.validator.programs import graph

    model, target = graph(*SHAPES[name], tied=name != "8b"), lookup(gpu).as_target()
    return pickle.dumps((encode(lower(model, target, 4096)), model, target))


def main() -> None:
    """Makes the tables elsewhere, validates them here."""
    name, gpu = (sys.argv[1:] + ["8b", "h200"][len(sys.argv) - 1 :])[:2]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        tables, model, target = pickle.loads(pool.apply(make, (name, gpu)))  # noqa: S301 (our own bytes)
    from validator import validate

    wall, processor = time.perf_counter(), time.process_time()
    report = validate(tables, model, target)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(report.text().splitlines()[0])
    print(f"{name} {gpu}: wall {wall:.2f} s, processor seconds and peak MiB: {processor:.2f} {peak:.0f}")
    sys.exit(int(not report.ok))


if __name__ == "__main__":
    main()
