"""sha256 of large files: parallel, and remembered until a file changes.

A file's digest is the sha256 over the sha256s of its 64 MiB pieces, so all cores can work on one file; the digest of a
checkpoint is the sha256 over its files' digests in sorted order, so that renaming or moving the files changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from amk.errors import UnsupportedModelError

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

_PIECE = 64 << 20
_VERSION = 1  # of the recipe and of the cache entries


def files_digest(paths: Sequence[Path], progress: Progress | None = None, cache: Path | None = None) -> str:
    """sha256 (hex) of the contents of `paths`; instant where the cache knows the files as they are now.

    `cache` defaults to the user's cache folder; one that cannot be written is done without. Raises
    UnsupportedModelError for a file that cannot be read.
    """
    folder = cache_folder() if cache is None else cache
    total = sum(_stat(path).st_size for path in paths)
    done = 0
    digests = []
    for path in paths:
        digest = _recall(folder, path)
        if digest is None:
            digest = _remember(folder, path, partial(_report, progress, done, total))
        digests.append(digest)
        done += _stat(path).st_size
        if progress:
            progress(done, total)
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def _report(progress: Progress | None, base: int, total: int, done: int) -> None:
    """Progress within one file, as progress over all of them."""
    if progress:
        progress(base + done, total)


def cache_folder() -> Path:
    """Where digests are kept: the XDG cache folder of the user."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "amk" / "digests"


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise UnsupportedModelError(f"{path}: cannot be read: {error.strerror}; check the file") from error


def _entry(folder: Path, path: Path) -> tuple[Path, list[int]]:
    """(cache entry of a file, what tells whether the file is still the one that was hashed)."""
    stat = _stat(path)
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    return folder / f"{name}.json", [_VERSION, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _recall(folder: Path, path: Path) -> str | None:
    entry, identity = _entry(folder, path)
    try:
        stored = json.loads(entry.read_text())
        return str(stored["digest"]) if stored["identity"] == identity else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(folder: Path, path: Path, progress: Callable[[int], None]) -> str:
    """Hash the file and store the digest, unless the file changed meanwhile or the folder cannot be written."""
    before = _entry(folder, path)
    digest = _hash_file(path, progress)
    if _entry(folder, path) == before:
        with contextlib.suppress(OSError):
            _store(before[0], json.dumps({"identity": before[1], "digest": digest, "path": str(path.resolve())}))
    return digest


def _store(entry: Path, text: str) -> None:
    """Written aside and renamed, so that a reader never sees half an entry."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=entry.parent, suffix=".tmp", delete=False) as file:
        file.write(text)
    Path(file.name).replace(entry)


def _hash_file(path: Path, progress: Callable[[int], None]) -> str:
    if _stat(path).st_size == 0:
        return hashlib.sha256().hexdigest()
    data = np.memmap(path, np.uint8, "r")
    starts = range(0, data.size, _PIECE)

    def piece(start: int) -> bytes:
        return hashlib.sha256(data[start : start + _PIECE].data).digest()  # releases the GIL, also while it pages in

    whole = hashlib.sha256()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for start, digest in zip(starts, pool.map(piece, starts), strict=True):
            whole.update(digest)
            progress(min(start + _PIECE, data.size))
    return whole.hexdigest()
