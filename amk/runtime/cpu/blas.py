"""One BLAS thread for matrix-vector products.

They are bound by memory, which one core nearly saturates, and a token is a chain of hundreds of small ones. OpenBLAS's
threads spin at each for the slowest; on a machine whose cores are busy otherwise that took 280 ms a token instead of
48 (SmolLM2-135M, 2 cores). One thread also makes results independent of the number of cores.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]


def single_threaded() -> AbstractContextManager[Any]:
    """A context in which NumPy's BLAS uses one thread."""
    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits
