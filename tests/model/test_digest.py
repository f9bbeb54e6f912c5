"""Checkpoint digests: they follow the content, are remembered, and do without a cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from amk.errors import UnsupportedModelError
from amk.model import digest
from amk.model.digest import files_digest


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(path.name.encode() * 1000)
    return paths


def test_content_decides(files: list[Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = files_digest(files, cache=cache)
    assert first == files_digest(files[::-1], cache=tmp_path / "other")
    files[0].write_bytes(b"a" * 999 + b"c")  # same size
    assert files_digest(files, cache=cache) != first
    files[0].write_bytes(b"a" * 1000)
    assert files_digest(files, cache=cache) == first
    moved = files[0].rename(tmp_path / "moved")
    assert files_digest([moved, files[1]], cache=cache) == first


def test_cache_is_used_until_the_file_changes(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = files_digest(files, cache=cache)
    hashed: list[Path] = []
    original = digest._hash_file

    def hash_file(path: Path, progress: Callable[[int], None]) -> str:
        hashed.append(path)
        return original(path, progress)

    monkeypatch.setattr(digest, "_hash_file", hash_file)
    assert files_digest(files, cache=cache) == first
    assert hashed == []
    stat = files[1].stat()
    files[1].write_bytes(b"x" * 1000)
    os.utime(files[1], ns=(stat.st_atime_ns, stat.st_mtime_ns))  # hiding the change does not help
    assert files_digest(files, cache=cache) != first
    assert hashed == [files[1]]


def test_damaged_or_unusable_cache(files: list[Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = files_digest(files, cache=cache)
    for entry in cache.iterdir():
        entry.write_text("{}")
    assert files_digest(files, cache=cache) == first
    blocked = tmp_path / "file"
    blocked.touch()
    assert files_digest(files, cache=blocked / "cache") == first


def test_pieces_and_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "big"
    path.write_bytes(bytes(range(256)) * 40)
    monkeypatch.setattr(digest, "_PIECE", 1000)
    seen: list[tuple[int, int]] = []
    first = files_digest([path], lambda done, total: seen.append((done, total)), tmp_path / "cache")
    assert seen[0] == (1000, 10240)
    assert seen[-1] == (10240, 10240)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    changed = bytearray(path.read_bytes())
    changed[5000] ^= 1
    path.write_bytes(changed)
    assert files_digest([path], cache=tmp_path / "cache") != first


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="none: cannot be read: No such file"):
        files_digest([tmp_path / "none"], cache=tmp_path)


def test_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert digest.cache_folder() == tmp_path / "amk" / "digests"
