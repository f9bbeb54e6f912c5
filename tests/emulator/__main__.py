"""Decodes the cases on the emulator: python -m tests.emulator [CASE ...] [--seeds N] [--delays] [--folder F]

The kernels are those of the amk that is imported, so PYTHONPATH chooses the tree.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from amk.emit.compile import kernel_folder
from tests.emulator.cases import CASES
from tests.emulator.compare import BOUNDS, decode, error, expected
from tests.emulator.machine import emulated, library_of


def check(name: str, folder: Path, seeds: int, delays: bool) -> bool:
    """Whether every seed gives the CPU runtime's tokens, logits within the bound, and the same bits."""
    case = CASES[name]
    model = case.model()
    program = case.program(model)
    wanted, begin = expected(program, model), time.monotonic()
    library = library_of(program, folder, delays=delays)
    print(f"{name}: {case.shows}; compiled in {time.monotonic() - begin:.1f} s")
    results = []
    for seed in range(seeds):
        begin = time.monotonic()
        with emulated(program, model, library, seed) as machine:
            results.append(decode(machine))
        worst, same = error(results[-1], wanted), results[-1].same_bits(results[0])
        tokens = "same" if results[-1].tokens == wanted.tokens else "OTHER"
        took = time.monotonic() - begin
        print(f"  seed {seed}: error {worst:.1e}, tokens {tokens}, bits {'same' if same else 'OTHER'}, {took:.1f} s")
        if not worst < BOUNDS[case.kv_dtype] or tokens == "OTHER" or not same:
            return False
    return True


def main() -> int:
    """0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m tests.emulator")
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--seeds", type=int, default=2, help="interleavings of each")
    parser.add_argument("--delays", action="store_true", help="with the kernel's own injected delays")
    parser.add_argument("--folder", type=Path, default=None, help="where compiled kernels are kept")
    options = parser.parse_args()
    print(f"kernels: {kernel_folder()}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        good = [check(name, folder, options.seeds, options.delays) for name in options.cases or CASES]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
