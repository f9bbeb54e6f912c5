"""How large a compiled kernel is: what its instruction cache does not hold, an SM fetches from L2."""

from __future__ import annotations

import struct

from amk.emit.source import KERNEL_NAME
from amk.errors import RejectedProgramError

INSTRUCTION_BYTES = 16
"""On sm_70 and later."""

_HEADER = struct.Struct("<40xQ10xHHH")
"""Of ELF-64: place of the section table, size and number of its entries, number of the section of names."""

_SECTION = struct.Struct("<I20xQQ24x")
"""Offset of a section's name among the names, place and size of its contents."""


def instructions(cubin: bytes) -> int:
    """SASS instructions of the decode kernel, padding included. Raises RejectedProgramError if there is none."""
    table, size, count, names = _HEADER.unpack_from(cubin)
    sections = [_SECTION.unpack_from(cubin, table + number * size) for number in range(count)]
    _, begin, length = sections[names]
    texts = cubin[begin : begin + length]
    for name, _, contents in sections:
        if texts[name : texts.index(b"\0", name)] == f".text.{KERNEL_NAME}".encode():
            return int(contents) // INSTRUCTION_BYTES
    raise RejectedProgramError(f"the cubin has no kernel {KERNEL_NAME}; build the artifact again")
