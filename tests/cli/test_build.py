"""`amk build`: what reaches the pipeline, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import amk
from amk.errors import DeviceError
from amk.progress import ConsoleProgress
from tests.cli.conftest import Run


def test_defaults(run: Run, builds: list[dict[str, Any]], tmp_path: Path) -> None:
    result = run("build", "some/model")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{tmp_path}: ready in ")
    (call,) = builds
    assert isinstance(call.pop("progress"), ConsoleProgress)
    defaults = {"gpu": "auto", "max_seq": None, "out": None, "kv_dtype": "fp16", "random_weights": None, "force": False}
    assert call == {"model": "some/model", "tuned": True, **defaults}


def test_every_option(run: Run, builds: list[dict[str, Any]]) -> None:
    options = [
        "--gpu",
        "l4",
        "--max-seq",
        "512",
        "--out",
        "o",
        "--kv-dtype",
        "fp32",
        "--random-weights",
        "0",
        "--no-tuned",
        "--force",
    ]
    run("build", "m.gguf", *options)
    (call,) = builds
    del call["progress"]
    expected = {"gpu": "l4", "max_seq": 512, "out": Path("o"), "kv_dtype": "fp32", "random_weights": 0, "force": True}
    assert call == {"model": "m.gguf", "tuned": False, **expected}


def test_json(run: Run, builds: list[dict[str, Any]], tmp_path: Path) -> None:
    document = json.loads(run("build", "m", "--json").stdout)
    assert document["path"] == str(tmp_path)
    assert document["manifest"] == {"format": 1}


def test_no_gpu_for_auto(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: Any, **__: Any) -> None:
        raise DeviceError("--gpu auto: no NVIDIA driver on this machine")

    monkeypatch.setitem(vars(amk), "build", build)
    result = run("build", "m")
    assert (result.exit_code, result.stderr) == (5, "amk: --gpu auto: no NVIDIA driver on this machine\n")


def test_help_names_the_default_length(run: Run) -> None:
    from amk.pipeline import DEFAULT_MAX_SEQ

    assert f"at most {DEFAULT_MAX_SEQ}" in " ".join(run("build", "--help").stdout.split())
