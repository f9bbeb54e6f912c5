"""The kernel does not grow unnoticed: an SM's instruction cache does not hold much more than a layer's tasks."""

from __future__ import annotations

import pytest

from amk.emit import compile_cubin, emit_source
from amk.emit.code_size import instructions
from amk.errors import RejectedProgramError
from amk.gpus import lookup
from amk.lower import Knobs, lower
from amk.model.walker import walk
from tests.gpu.shapes import CONFIGS

MOST = {("llama-1b", 1): 4330, ("llama-1b", 0): 5250, ("llama-8b", 1): 4630, ("llama-8b", 0): 6270}
"""Instructions on an H200, by shape and the knob `loaded_tiles`: 1 for none, 0 for the default. There were 5,824 and
6,960 before variants shared code. With small ops sharing theirs too there were 3,112 and 3,664, which was slower, and
so are those without loaded tiles, which have a product behind every poll (docs/design.md). Lower these when they fall.
"""


def compiled(shape: str, loaded_tiles: int) -> bytes:
    target = lookup("h200").as_target()
    program = lower(walk(CONFIGS[shape]), target, 4096, knobs=Knobs(loaded_tiles=loaded_tiles))
    return compile_cubin(emit_source(program), target).cubin


@pytest.mark.parametrize(("shape", "loaded_tiles"), MOST)
def test_instructions(shape: str, loaded_tiles: int) -> None:
    cubin = compiled(shape, loaded_tiles)
    assert 2000 < instructions(cubin) <= MOST[shape, loaded_tiles]
    with pytest.raises(RejectedProgramError, match="has no kernel amk_decode"):
        instructions(cubin.replace(b".text.amk_decode", b".text.amk_dec0de"))
