"""Packets while a Program is walked: for every packet, its tag and where its value comes from.

A `code` names a value: writer * 2^16 + index in what that writer publishes.

Attention publishes in two ways: with one active split it writes its output itself, with several it writes partial
results and `combine` writes the output. The walk serves all positions at once, so every packet is tracked in two
worlds, `ONE` and `SEVERAL` active splits; a reader waits until both have what it needs. That is at least as strict as
any single position.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]
Copy = bytes
"""Codes as the bytes of their array: hashable, and a bytes object remembers its hash."""

INDEX_BITS = 16
_Item = TypeVar("_Item", bound=np.generic)

ONE = slice(0, 1)
SEVERAL = slice(1, 2)
BOTH = slice(0, 2)


class MailboxError(ValueError):
    """A packet access that no order of execution makes right; the message says which."""


class Range(NamedTuple):
    """`length` packets from `start`, tagged with `phase`."""

    start: int
    length: int
    phase: int

    def __str__(self) -> str:
        return f"packets {self.start}..{self.start + self.length - 1} of phase {self.phase}"


def _overlap(a: Range, b: Range) -> bool:
    return a.start < b.start + b.length and b.start < a.start + a.length


class Mailbox:
    """The packets of one token: int32 tags and int64 codes [2 worlds, packets]."""

    def __init__(self, packets: int) -> None:
        self._tags = np.full((2, packets), -1, np.int32)
        self._codes = np.zeros((2, packets), np.int64)
        self._read: dict[int, dict[Range, Copy]] = defaultdict(dict)

    def write(self, where: Range, codes: Codes, worlds: slice = BOTH) -> None:
        """Publish values. Raises MailboxError outside the mailboxes, or where the phase has been published already."""
        tags = self._slice(self._tags, where, worlds)
        if (tags == where.phase).any():
            raise MailboxError(f"{where} are published twice")
        if again := next((past for past in self._read[where.phase] if _overlap(past, where)), None):
            raise MailboxError(f"{where} are published after {again} were read")
        tags[:] = where.phase
        self._slice(self._codes, where, worlds)[:] = codes

    def ready(self, where: Range, worlds: slice = BOTH) -> bool:
        """Whether all packets of the range carry the tag."""
        return bool((self._slice(self._tags, where, worlds) == where.phase).all())

    def read(self, where: Range) -> Copy:
        """The codes of a range that is ready. Raises MailboxError if they depend on the number of splits."""
        # All SMs read the same activations; the copy is made, compared and hashed once.
        known = self._read[where.phase]
        if where not in known:
            one, several = self._slice(self._codes, where, BOTH)
            if not np.array_equal(one, several):
                raise MailboxError(f"{where} hold different results with one and with several attention splits")
            known[where] = one.tobytes()
        return known[where]

    def read_several(self, where: Range) -> Codes:
        """The codes of a range that is ready, as they are with several attention splits."""
        return np.array(self._slice(self._codes, where, SEVERAL)[0])

    def missing(self, where: Range) -> int:
        """The first packet of the range that does not carry the tag."""
        behind = (self._slice(self._tags, where, BOTH) != where.phase).any(0)
        return where.start + int(behind.argmax())

    def _slice(self, array: npt.NDArray[_Item], where: Range, worlds: slice) -> npt.NDArray[_Item]:
        if where.start < 0 or where.length < 1 or where.start + where.length > self._tags.shape[1]:
            raise MailboxError(f"{where} are not among the {self._tags.shape[1]} there are")
        return array[worlds, where.start : where.start + where.length]


def codes_of(writer: int, count: int) -> Codes:
    """The codes of everything that a writer publishes: int64 [count]."""
    return np.arange(count, dtype=np.int64) + (writer << INDEX_BITS)
