"""Opening a model: a Hugging Face folder, a hub id or a GGUF file -> graph + checkpoint, checked against each other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amk.errors import UnsupportedModelError, UsageError
from amk.model.adapted_checkpoint import AdaptedCheckpoint
from amk.model.checkpoint import Checkpoint
from amk.model.digest import Progress
from amk.model.gguf_checkpoint import GgufCheckpoint
from amk.model.graph import ModelGraph
from amk.model.hub import download, is_hub_id
from amk.model.random_checkpoint import RandomCheckpoint
from amk.model.safetensors_checkpoint import SafetensorsCheckpoint
from amk.model.verify import verify_checkpoint
from amk.model.walker import walk

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""Files that a folder's tokenizer is made from: of the tokenizers library, SentencePiece, a vocabulary with merges."""


@dataclass(frozen=True)
class Model:
    """An opened model. `path` is the folder or .gguf file; weights are read only when asked for.

    `tokenizer_source` is what `load_tokenizer` takes, or None where the model comes without a tokenizer.
    """

    graph: ModelGraph
    checkpoint: Checkpoint
    path: Path
    kind: str
    tokenizer_source: Path | None


def open_model(model: str | Path, random_seed: int | None = None, progress: Progress | None = None) -> Model:
    """Open a folder, hub id or .gguf file; with `random_seed` its weights are made, not read.

    `progress(done, total)` is called while the checkpoint's digest is computed. Raises UsageError if there is no such
    model, UnsupportedModelError if amk cannot run it or its weights do not fit its config.
    """
    path = _locate(model, weights=random_seed is None)
    if path.is_file():
        return _open_gguf(path, random_seed, progress)
    graph = walk(*_read_configs(path))
    tokenizer = path if any((path / name).is_file() for name in TOKENIZERS) else None
    if random_seed is not None:
        return Model(graph, RandomCheckpoint(graph, random_seed), path, "random", tokenizer)
    checkpoint = AdaptedCheckpoint(SafetensorsCheckpoint.open(path, progress), graph)
    verify_checkpoint(graph, checkpoint)
    return Model(graph, checkpoint, path, checkpoint.kind, tokenizer)


def _locate(model: str | Path, weights: bool) -> Path:
    """The local path of a model, downloaded if it is a hub id."""
    path = Path(model).expanduser()
    if path.is_file() and path.suffix.lower() != ".gguf":
        raise UsageError(f"{path}: not a model; give a folder with config.json, a .gguf file or a hub id")
    if path.exists():
        return path
    if isinstance(model, str) and is_hub_id(model):
        return download(model, weights)
    raise UsageError(f"{model}: no such folder or file, and not a hub id such as owner/name")


def _open_gguf(path: Path, random_seed: int | None, progress: Progress | None) -> Model:
    checkpoint = GgufCheckpoint(path, progress)
    graph = walk(checkpoint.config(), checkpoint.generation_config())
    if random_seed is not None:
        return Model(graph, RandomCheckpoint(graph, random_seed), path, "random", path)
    adapted = AdaptedCheckpoint(checkpoint, graph)
    verify_checkpoint(graph, adapted)
    return Model(graph, adapted, path, adapted.kind, path)


def _read_configs(folder: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """(config.json, generation_config.json or None)."""
    config = folder / "config.json"
    if not config.is_file():
        raise UnsupportedModelError(f"{folder}: has no config.json; give a Hugging Face model folder{_hint(folder)}")
    generation = folder / "generation_config.json"
    return _read_json(config), _read_json(generation) if generation.is_file() else None


def _hint(folder: Path) -> str:
    files = sorted(folder.glob("*.gguf"))
    return f", or the file {files[0]}" if files else ""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnsupportedModelError(f"{path}: cannot be read: {error.strerror}; check the file") from error
    except ValueError as error:
        raise UnsupportedModelError(f"{path}: not valid JSON ({error}); download it again") from error
    if not isinstance(value, dict):
        raise UnsupportedModelError(f"{path}: holds {type(value).__name__}, not a JSON object; download it again")
    return value
