"""Token ids from a seed, the logits of a machine at chosen positions, and the hash of their bits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from amk.runtime.machine import Launch, Machine

F32 = npt.NDArray[np.float32]


def run_at(machine: Machine, ids: Sequence[int], positions: Sequence[int]) -> F32:
    """[positions, vocab]: feed `ids`, one launch per wanted position, logits of its last step only."""
    machine.reset(len(ids))
    rows, begin = [], 0
    for pos in positions:
        steps = pos + 1 - begin
        result = machine.run(Launch(begin, ids[begin : pos + 1], steps, steps - 1, want_logits=True), lambda _: None)
        assert result.logits is not None
        rows.append(result.logits[0])
        begin = pos + 1
    return np.array(rows, np.float32)


def logits_digest(logits: F32) -> str:
    """Hash of the bits."""
    return hashlib.sha256(np.ascontiguousarray(logits, np.float32).tobytes()).hexdigest()


def fresh_ids(seed: int, count: int, vocab: int) -> list[int]:
    """Token ids of a seed."""
    return [int(i) for i in np.random.default_rng(seed).integers(0, vocab, count)]
