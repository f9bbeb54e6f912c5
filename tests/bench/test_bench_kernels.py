"""The bench kernels compile for every code path, and the settings that are tried fit."""

from __future__ import annotations

import pytest

from amk.bench.ceiling import BARRIER_BYTES, Ceiling, Setting, candidates, stream_size
from amk.bench.gpu import compile_bench


@pytest.mark.parametrize(("path", "arch"), [("sm80", "sm_80"), ("sm90", "sm_90a"), ("sm120", "sm_120a")])
def test_compiles(path: str, arch: str) -> None:
    cubin = compile_bench(path, arch)
    assert b"amk_ceiling" in cubin
    assert b"amk_fill" in cubin


@pytest.mark.parametrize("shared_kib", [99, 163, 227])
def test_settings_fit(shared_kib: int) -> None:
    found = candidates(shared_kib << 10)
    assert all(BARRIER_BYTES + chunk * slots <= shared_kib << 10 for chunk, slots in found)
    assert max(chunk * slots for chunk, slots in found) >= 96 << 10
    assert all(slots <= BARRIER_BYTES // 8 for _, slots in found)


def test_streams_fit_half_of_the_memory() -> None:
    assert stream_size(140 << 30, 132) == 30 << 20
    assert stream_size(4 << 30, 128) == 16 << 20
    assert stream_size(0, 128) == 1 << 20


def test_the_fastest_setting_is_the_ceiling() -> None:
    slow, fast = Setting(8192, 4, 1e12), Setting(16384, 6, 2e12)
    assert Ceiling(1 << 20, (slow, fast)).best is fast
