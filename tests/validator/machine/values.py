"""Values are provenance: hashes of what they are computed from. Sums are numbers, so that parts add up in any order."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

MODULUS = 2**61 - 1


def add(*values: Any) -> int:
    """The sum; what is no number, which happens in wrong programs only, counts as its hash."""
    return sum(value if isinstance(value, int) else hash(("odd", value)) for value in values) % MODULUS


@lru_cache(maxsize=64)
def packed(rows: tuple[int, ...], interleaved: bool) -> list[tuple[int, int] | None]:
    """(tensor, row) of every packed row."""
    if not interleaved:
        return [(tensor, row) for tensor, count in enumerate(rows) for row in range(count)]
    per = 16 // len(rows)
    blocks = -(-rows[0] // per)
    return [
        (tensor, block * per + i) if block * per + i < rows[tensor] else None
        for block in range(blocks)
        for tensor in range(len(rows))
        for i in range(per)
    ]
