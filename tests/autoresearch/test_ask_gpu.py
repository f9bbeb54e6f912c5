"""The GPU is asked by a process of its own: its answer, its refusal, its silence."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import pytest

from amk.device import Device
from amk.errors import DeviceError
from autoresearch import ask_gpu

H200 = Device(0, "NVIDIA H200", "sm_90", 132, 232448, 60 << 20, 143771 << 20, 4800.0, True, False)


def answering(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let the process run this instead."""
    run = ask_gpu.subprocess.run
    monkeypatch.setattr(ask_gpu.subprocess, "run", lambda _, **options: run([sys.executable, "-c", code], **options))


def test_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, f"print({json.dumps(asdict(H200))!r})")
    assert ask_gpu.find_gpu("auto").name == "h200"
    assert ask_gpu.find_gpu("l4").name == "l4"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ('print(\'{"error": "no NVIDIA driver"}\')', "no NVIDIA driver"),
        ("raise SystemExit('boom')", "boom"),
        ("import time; time.sleep(60)", "no answer within 0.5 s"),
    ],
)
def test_no_answer(code: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, code)
    with pytest.raises(DeviceError, match=words):
        ask_gpu.first_gpu(0.5 if "sleep" in code else 30)
