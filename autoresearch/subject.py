"""What is searched: a model on a GPU, at a length, towards an objective. Results of two subjects never mix."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import amk
from amk.artifact import MANIFEST, read_manifest
from amk.bench.provenance import commit
from amk.emit.compile import kernel_sources_sha256
from amk.model.source import open_model
from amk.pipeline import DEFAULT_MAX_SEQ
from amk.tuned import find, shape_of
from autoresearch.ask_gpu import find_gpu
from autoresearch.space import knob_space
from autoresearch.workload import Workload, default_workload, from_json
from schedule_ir.target import Target

Mode = Literal["measured", "predicted"]


@dataclass(frozen=True)
class Subject:
    """`mode` says whether latencies come from a GPU or from the cost model; `digest` identifies the weights.

    The kernels' sources and the default setting are part of it: with others, everything has to be measured again.
    `default` is the setting of a fresh build, tuned if the table has an entry for this GPU and `shape`.
    """

    model: str
    random_seed: int | None
    digest: str
    target: dict[str, Any]
    max_seq: int
    kv_dtype: str
    workload: list[dict[str, Any]]
    mode: Mode
    kernels_sha256: str
    default: dict[str, int]
    shape: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Identifies the subject; where the weights lie does not matter."""
        data = {name: value for name, value in asdict(self).items() if name not in ("model", "shape")}
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def objective(self) -> Workload:
        """The workload."""
        return from_json(self.workload)

    def as_target(self) -> Target:
        """The GPU as the lowering sees it."""
        return Target(**self.target)

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{Path(self.model).name} on {self.target['name']}, {self.max_seq} tokens, {self.kv_dtype} K/V"


def subject_from_json(data: dict[str, Any]) -> Subject:
    """The subject of `to_json`."""
    return Subject(**data)


def make_subject(
    model: str | Path, gpu: str, max_seq: int | None, kv_dtype: str, random_seed: int | None, workload: Workload | None,
    mode: Mode,
) -> Subject:  # fmt: skip
    """The subject of a model. Opens the checkpoint for its digest. Raises AmkError."""
    opened = open_model(model, random_seed)
    target, shape = asdict(find_gpu(gpu).as_target()), shape_of(opened.graph)
    length = max_seq or min(opened.graph.max_position, DEFAULT_MAX_SEQ)
    return Subject(
        model=str(opened.path.resolve()),
        random_seed=random_seed,
        digest=opened.checkpoint.digest,
        target=target,
        max_seq=length,
        kv_dtype=kv_dtype,
        workload=(workload or default_workload(length)).to_json(),
        mode=mode,
        kernels_sha256=kernel_sources_sha256(),
        default=default_setting(target["name"], shape, kv_dtype),
        shape=shape,
    )


def default_setting(gpu: str, shape: Mapping[str, Any], kv_dtype: str) -> dict[str, int]:
    """The knobs of a fresh build: those of the table of tuned schedules, or the lowering's own."""
    entry = find(gpu, shape, kv_dtype)
    return knob_space().default if entry is None else asdict(entry.as_knobs())


def code_facts() -> dict[str, Any]:
    """Which amk this is: version, and the commit if it runs from a checkout."""
    return {"amk": amk.__version__, "commit": commit(Path(amk.__file__).parent)}


def artifact_inputs(directory: Path) -> dict[str, Any]:
    """What an artifact was built from, as arguments of `make_subject`. Raises ArtifactError."""
    manifest = read_manifest(directory)
    build = manifest["build"]
    return {
        "model": manifest["model"]["path"],
        "random_seed": manifest["model"]["random_seed"],
        "gpu": build["target"]["name"],
        "max_seq": build["max_seq"],
        "kv_dtype": build["kv_dtype"],
    }


def is_artifact(path: Path) -> bool:
    """Whether this is a folder that amk build made."""
    return (path / MANIFEST).is_file()
