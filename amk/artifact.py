"""The artifact: a small folder with everything but the weights, every file hashed, written whole or not at all.

- manifest.json: versions, target, checkpoint and its digest, resource usage, sha256 of the other files
- program.json: the Program but for its tasks
- records.npy int32 [tasks, 12] and ranges.npy int32 [sms, 3, 2, 2]: the device tables
- kernel.cu: the generated source, for people
- kernel.cubin: the compiled kernel
- certificate.json: what the validator proved of the tables and the cubin
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from amk.errors import ArtifactError
from schedule_ir.codec import MalformedTablesError, Tables, decode
from schedule_ir.program import Program

FORMAT = 1
MANIFEST = "manifest.json"
FILES = ("program.json", "records.npy", "ranges.npy", "kernel.cu", "kernel.cubin", "certificate.json")


@dataclass(frozen=True)
class Artifact:
    """A loaded artifact; its files match the manifest's hashes."""

    path: Path
    manifest: Mapping[str, Any]
    tables: Tables
    source: str
    cubin: bytes
    certificate: Mapping[str, Any]

    @property
    def program(self) -> Program:
        """The Program that the tables describe. Raises ArtifactError if they do not decode."""
        try:
            return decode(self.tables)
        except MalformedTablesError as error:
            raise ArtifactError(f"{self.path}: {error}; build it again") from error


def write_artifact(
    path: Path, manifest: Mapping[str, Any], tables: Tables, source: str, cubin: bytes, certificate: Mapping[str, Any]
) -> Artifact:
    """Write an artifact to `path`, replacing an earlier artifact there.

    Raises ArtifactError if something that is no artifact is in the way, or the disk is full; then nothing changes.
    """
    check_replaceable(path)
    contents = {
        "program.json": json.dumps(tables.header, indent=1).encode(),
        "records.npy": _npy(tables.records),
        "ranges.npy": _npy(tables.ranges),
        "kernel.cu": source.encode(),
        "kernel.cubin": cubin,
        "certificate.json": json.dumps(certificate, indent=1).encode(),
    }
    full = {"format": FORMAT, **manifest, "sha256": {name: _sha256(data) for name, data in contents.items()}}
    contents[MANIFEST] = json.dumps(full, indent=1).encode()
    try:
        _replace_folder(path, contents)
    except OSError as error:
        raise ArtifactError(
            f"{path}: cannot be written: {error.strerror or error}; free space or choose --out"
        ) from error
    return Artifact(path, full, tables, source, cubin, certificate)


def read_artifact(path: Path) -> Artifact:
    """Read an artifact and check every hash. Raises ArtifactError naming the file that is missing or was changed."""
    manifest = read_manifest(path)
    contents = {name: _read(path / name) for name in FILES}
    for name, data in contents.items():
        if _sha256(data) != manifest.get("sha256", {}).get(name):
            raise ArtifactError(f"{path / name}: changed since the build; build the artifact again")
    try:
        header = json.loads(contents["program.json"])
        tables = Tables(header, _array(contents["records.npy"]), _array(contents["ranges.npy"]))
        certificate = json.loads(contents["certificate.json"])
    except ValueError as error:
        raise ArtifactError(f"{path}: not readable ({error}); build the artifact again") from error
    return Artifact(path, manifest, tables, contents["kernel.cu"].decode(), contents["kernel.cubin"], certificate)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest alone. Raises ArtifactError if there is none, or it is of another format."""
    if not path.is_dir():
        raise ArtifactError(f"{path}: no such folder; make an artifact with amk build")
    try:
        manifest = json.loads(_read(path / MANIFEST))
    except ValueError as error:
        raise ArtifactError(f"{path / MANIFEST}: not readable ({error}); build the artifact again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArtifactError(f"{path / MANIFEST}: not an artifact of format {FORMAT}; build it again with this amk")
    return manifest


def check_replaceable(path: Path) -> None:
    """Raise ArtifactError if something that is no artifact, and so not ours to replace, is at `path`."""
    if path.exists() and not (path.is_dir() and ((path / MANIFEST).is_file() or not any(path.iterdir()))):
        raise ArtifactError(f"{path}: exists and is no artifact; choose another --out")


def _replace_folder(path: Path, contents: Mapping[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        for name, data in contents.items():
            (scratch / name).write_bytes(data)
        scratch.chmod(0o755)
        _swap(scratch, path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _swap(fresh: Path, path: Path) -> None:
    """Put a folder in the place of another, which comes back if that fails. What else lay there (a search) stays."""
    old = fresh.with_name(f"{fresh.name}.old")
    if path.exists():
        path.rename(old)
    try:
        fresh.rename(path)
    except BaseException:
        if old.exists():
            old.rename(path)
        raise
    if old.exists():
        for entry in old.iterdir():
            if entry.name not in (*FILES, MANIFEST):
                entry.rename(path / entry.name)
        shutil.rmtree(old)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: {error.strerror}; build the artifact again") from error


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _array(data: bytes) -> np.ndarray[Any, np.dtype[np.int32]]:
    array: np.ndarray[Any, Any] = np.load(io.BytesIO(data), allow_pickle=False)
    if array.dtype != np.int32:
        raise ValueError(f"table of {array.dtype}, not int32")
    return array


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
