"""Injected delays: a switch of the emitter that compiles, and that leaves no trace where it is off."""

from __future__ import annotations

import difflib
import shutil
from pathlib import Path
from typing import Any

import pytest

from amk.emit import compile_cubin, emit_source
from amk.emit.compile import kernel_folder
from tests.test_golden import program

HOOK = "    inject_delay(lane);\n"


def added(**switches: Any) -> list[str]:
    """Lines that the switches add to the source; nothing may be taken away."""
    plain, switched = (emit_source(program("sm90"), **given).splitlines() for given in ({}, switches))
    changed = [line for line in difflib.ndiff(plain, switched) if line[0] in "+-"]
    assert not [line for line in changed if line[0] == "-"]
    return [line[2:] for line in changed]


def test_the_switch_adds_two_lines_and_its_absence_none() -> None:
    # That the source without it is the one from before is what tests/test_golden.py pins.
    assert added() == []
    assert added(delays=True) == ["#define AMK_DELAYS 1", "constexpr u32 kDelaySeed = 0x5eedu;"]
    assert added(delays=True, delay_seed=(1 << 32) + 9)[1] == "constexpr u32 kDelaySeed = 0x9u;"
    assert "DELAY" not in emit_source(program("sm90"), trace=True).upper()


def test_delays_compile_and_change_the_kernel() -> None:
    made = program("sm90")
    plain, delayed = (compile_cubin(emit_source(made, delays=delays), made.target) for delays in (False, True))
    assert made.target.nvrtc_arch == "sm_90a"
    assert delayed.sha256 != plain.sha256
    assert (delayed.resources["stack_bytes"], delayed.resources["spill_bytes"]) == (0, 0)


def test_without_the_switch_the_hook_compiles_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = program("sm90")
    source = emit_source(made)
    hooked = compile_cubin(source, made.target)
    headers = tmp_path / "kernels"
    shutil.copytree(kernel_folder(), headers)
    text = (headers / "megakernel.cuh").read_text()
    assert text.count(HOOK) == 1
    (headers / "megakernel.cuh").write_text(text.replace(HOOK, "").replace('#include "delay.cuh"\n', ""))
    monkeypatch.setattr("amk.emit.compile.kernel_folder", lambda: headers)
    assert compile_cubin(source, made.target).cubin == hooked.cubin
