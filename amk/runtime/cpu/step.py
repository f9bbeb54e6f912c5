"""What a bound node gets when it runs: the values of the nodes before it and the token step in progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.runtime.cpu.nodes import Read

F32 = npt.NDArray[np.float32]
Values = list[Any]


@dataclass
class Step:
    """The token step in progress: the embedding row and cos_sin [tables, dim/2, 2] at its position."""

    embedding: F32
    pos: int
    cos_sin: F32


Bound = Callable[[Values, Step], Any]


def read(values: Values, where: Read) -> F32:
    """The fp32 values of a range of packets: a view where it is one slice of one node."""
    if len(where) == 1:
        node, start, stop = where[0]
        view: F32 = values[node][start:stop]
        return view
    return np.concatenate([values[node][start:stop] for node, start, stop in where])
