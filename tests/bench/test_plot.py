"""The picture of a result."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from amk.bench.plot import load_matplotlib, plot
from amk.errors import UsageError

DATA: dict[str, Any] = {
    "model": {"name": "tiny"},
    "provenance": {"gpu": {"name": "NVIDIA H200"}},
    "methods": {"cublas": "cuBLAS", "compile": "torch.compile"},
    "positions": [
        {"pos": pos, "ms": 0.5 + pos / 1e5, "floor_ms": 0.4, "baselines": {"cublas": {"ms": 1.5}}}
        for pos in (0, 1024, 4096)
    ],
}


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(UsageError, match=r"pip install 'amk\[bench\]'"):
        load_matplotlib()


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'amk[bench]'")
    plot(DATA, tmp_path / "result.png")
    assert (tmp_path / "result.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UsageError, match=r"use \.png or \.svg"):
        plot(DATA, tmp_path / "result.xyz")
