"""Spacers: random sizes, small beside what is free, and never a reason to fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from amk.errors import DeviceError
from amk.runtime.cuda import driver
from autoresearch.spacer import LEAST_PART, MOST_BYTES, PAGE_BYTES, GpuSpacer, spacer_bytes

GIB = 1 << 30


class FakeMemory:
    """Hands out memory until `room` bytes are gone."""

    def __init__(self, free: int, room: int) -> None:
        self.room = room
        self.sizes: dict[int, int] = {}
        self.driver = SimpleNamespace(
            cuCtxSetCurrent=lambda _: (0,),
            cuMemGetInfo=lambda: (0, free, free),
            cuMemAlloc=self.allocate,
            cuMemFree=self.free,
            cuGetErrorString=lambda _: (0, b"out of memory"),
        )

    def allocate(self, size: int) -> tuple[int, ...]:
        if size > self.room:
            return (2,)
        self.room -= size
        self.sizes[len(self.sizes) + 1] = size
        return 0, len(self.sizes)

    def free(self, pointer: int) -> tuple[int]:
        self.room += self.sizes.pop(pointer)
        return (0,)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(free: int, room: int) -> FakeMemory:
        made = FakeMemory(free, room)
        monkeypatch.setattr(driver, "driver", lambda: made.driver)
        monkeypatch.setattr("autoresearch.spacer.driver", lambda: made.driver)
        return made

    return make


def test_sizes() -> None:
    shares = [i / 1000 for i in range(1000)]
    for free in (139 * GIB, GIB, 1 << 24, 0):
        sizes = [spacer_bytes(share, free) for share in shares]
        assert max(map(sum, sizes)) <= min(MOST_BYTES, free // LEAST_PART)
        assert all(pages % PAGE_BYTES == 0 and 0 <= part < PAGE_BYTES // 2 for pages, part in sizes)
    assert len({spacer_bytes(share, 139 * GIB) for share in shares}) > 900
    assert spacer_bytes(0.0, GIB) == (0, 0)


def test_it_holds_memory_until_it_is_closed(gpu: Any) -> None:
    fake = gpu(139 * GIB, GIB)
    spacer = GpuSpacer("context", 0.3)
    assert tuple(fake.sizes.values()) == spacer_bytes(0.3, 139 * GIB)
    spacer.close()
    spacer.close()
    assert (fake.sizes, fake.room) == ({}, GIB)


@pytest.mark.parametrize("room", [0, PAGE_BYTES])
def test_a_full_memory_is_no_failure(room: int, gpu: Any) -> None:
    fake = gpu(GIB, room)
    GpuSpacer("context", 0.9).close()
    assert fake.room == room


def test_nor_is_a_driver_that_fails(monkeypatch: pytest.MonkeyPatch, gpu: Any) -> None:
    gpu(GIB, GIB)

    def fail(*_: Any) -> None:
        raise DeviceError("cuCtxSetCurrent failed: an illegal address was encountered")

    monkeypatch.setattr("autoresearch.spacer.call", fail)
    GpuSpacer("context", 0.9).close()
