"""Device memory that nobody uses: what is allocated after it lies elsewhere than it would."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

from amk.errors import DeviceError
from amk.runtime.cuda.driver import Memory, call, driver

PAGE_BYTES = 2 << 20
"""What the driver maps at once. Smaller allocations share a page, one after the other."""

MOST_BYTES = 256 << 20
LEAST_PART = 64
"""A spacer takes at most MOST_BYTES, and at most one part in LEAST_PART of the memory that is free."""


class Spacer(Protocol):
    """Memory that is held until `close`."""

    def close(self) -> None:
        """Let go of it."""


class NoSpacer:
    """Where nothing has an address."""

    def close(self) -> None:
        """Nothing."""


class GpuSpacer:
    """A spacer in the memory of the context's GPU. Where it does not fit it is smaller or nothing: it never fails.

    An allocator that gets back what it gave may hand out the same addresses again, and loading anew alone would change
    nothing. Hence two allocations of a random size: whole pages, which move the weights and the K/V cache, and a part
    of a page, which moves what shares pages: mailboxes, tables, norms.
    """

    def __init__(self, context: Any, share: float) -> None:
        self._context, self._memory = context, Memory()
        with contextlib.suppress(DeviceError):  # what is wrong beyond a full memory shows at the load that follows
            call(driver().cuCtxSetCurrent, context)
            free, _ = call(driver().cuMemGetInfo)
            for size in spacer_bytes(share, free):
                if size:
                    self._memory.allocate(size)

    def close(self) -> None:
        """Free the memory."""
        driver().cuCtxSetCurrent(self._context)
        self._memory.close()


def spacer_bytes(share: float, free: int) -> tuple[int, int]:
    """(bytes in whole pages, bytes of a shared page) of a spacer that is `share` in [0, 1) of the largest."""
    pages, rest = divmod(int(share * min(MOST_BYTES, free // LEAST_PART)), PAGE_BYTES)
    return pages * PAGE_BYTES, rest // 2  # from about half a page on, an allocation gets pages of its own
