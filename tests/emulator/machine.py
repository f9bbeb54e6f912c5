"""The CUDA machine on the emulator: a program's own kernel, loaded and launched by amk's own host code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from amk.emit import emit_source
from amk.model.source import Model
from amk.runtime.cuda import CudaMachine
from amk.runtime.cuda import machine as cuda_machine
from schedule_ir import Program, encode
from tests.emulator.build import Edit, build
from tests.emulator.driver import EmulatedDriver, installed

WAIT_LIMIT = 256
"""Units of 1024 clocks, 16 rounds of the scheduler each: a token of a small model takes some hundred rounds."""


def library_of(program: Program, folder: Path, edit: Edit = lambda _, text: text, **emission: bool) -> Path:
    """The program's kernel for the host, from the headers of the amk that is imported, changed by `edit`.

    `emission` are the switches of `emit_source`: trace, delays.
    """
    return build(emit_source(program, **emission), folder, edit)


@contextmanager
def emulated(program: Program, model: Model, library: Path, seed: int = 0) -> Iterator[CudaMachine]:
    """A loaded machine, with the interleaving that `seed` draws."""
    with installed(EmulatedDriver(program.target, seed)), patch.object(cuda_machine, "WAIT_LIMIT", WAIT_LIMIT):
        machine = CudaMachine(encode(program), str(library).encode(), model)
        try:
            yield machine
        finally:
            machine.close()
