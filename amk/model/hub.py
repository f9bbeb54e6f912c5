"""Fetching a model from the Hugging Face hub: weights as safetensors, config and tokenizer files, nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from amk.errors import UsageError

_CONFIG = ["*.json", "*.jinja", "tokenizer.*", "merges.txt"]
_WEIGHTS = ["*.safetensors"]
_IGNORED = ["*/*", "consolidated*"]  # other formats of the same weights


def is_hub_id(model: str) -> bool:
    """Whether the text has the form owner/name."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", model) is not None


def download(model: str, weights: bool) -> Path:
    """The local snapshot folder of a hub id, fetched if it is not there. Raises UsageError if that fails."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    patterns = _CONFIG + (_WEIGHTS if weights else [])
    try:
        return Path(snapshot_download(model, allow_patterns=patterns, ignore_patterns=_IGNORED))
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"{model}: no such folder here and no such model on the hub; check the name, or log in if it is gated"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(
            f"{model}: no such folder here, and the hub cannot be reached ({reason}); go online, or give a local folder"
        ) from error
