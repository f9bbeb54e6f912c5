"""What goes wrong on the GPU is named: hangs with their task, K/V that overflows; and memory comes back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import amk
from amk.device import memory
from amk.errors import DeviceError
from amk.model.source import open_model
from amk.runtime.cuda import CudaMachine
from tests.small import small_artifact, small_model
from tests.stops import check_stops

ROOT = Path(__file__).parent.parent.parent

LATE = r" or the next one \(gemv\w*\)"
"""Where the task may have taken a unit along, whose weights it waited for."""

HANGS = {
    "dropped publish": r"SM \d+, lane compute, task \d+ \(sample\), step 0",
    "dropped copy": r"SM \d+, lane compute, task \d+ \((gemv\)|add_norm\)" + LATE + "), step 0",
    "wrong tag": rf"SM \d+, lane compute, task \d+ \((attend|combine|gather|add_norm)\)({LATE})?, step 0",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("failures") / "model")


@pytest.mark.parametrize("kind", HANGS)
def test_a_hang_is_reported_with_its_task(model: Path, kind: str) -> None:
    command = [sys.executable, "-m", "tests.gpu.hang", str(model), kind]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    tokens, *error = done.stdout.splitlines()
    assert re.fullmatch(r"\[\d+\]", tokens)
    assert len(error) == 1, done.stdout
    assert re.search(f"^the kernel hung: {HANGS[kind]}; load the artifact again", error[0]), error[0]


def test_kv_overflow_is_reported(tmp_path: Path) -> None:
    from tests.model.builders import hf_model

    hf = hf_model()
    hf.model.layers[1].self_attn.k_proj.weight.data.mul_(1e8)
    hf.bfloat16().save_pretrained(tmp_path / "model")
    small_artifact(tmp_path / "model", tmp_path / "fp16", gpu="auto")
    with amk.load(tmp_path / "fp16", device="cuda") as session:
        with pytest.raises(DeviceError, match=r"K/V of layer 1, head \d at position 0 overflows fp16; build with"):
            session.generate([1, 2, 3], 4)
        with pytest.raises(DeviceError, match="overflows fp16"):  # and the session goes on
            session.generate([1, 2, 3], 4)
    small_artifact(tmp_path / "model", tmp_path / "bf16", gpu="auto", kv_dtype="bf16")
    with amk.load(tmp_path / "bf16", device="cuda") as session:
        assert len(session.generate([1, 2, 3], 4).token_ids) >= 1


@pytest.mark.skipif(
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1,
    reason="counts the GPU's free memory, which other workers take and free: run it with one worker",
)
def test_closing_frees_the_memory(model: Path, tmp_path: Path) -> None:
    small_artifact(model, tmp_path / "out", gpu="auto", max_seq=256)
    before = []
    for _ in range(3):
        with amk.load(tmp_path / "out", device="cuda") as session:
            session.generate([1, 2, 3], 4)
        before.append(memory(0).free_bytes)
    assert before[2] >= before[0]


def test_a_stop_token_and_cancelling_end_a_launch(model: Path, tmp_path: Path) -> None:
    artifact = small_artifact(model, tmp_path / "out", gpu="auto", max_seq=256)
    machine = CudaMachine(artifact.tables, artifact.cubin, open_model(model))
    try:
        check_stops(machine)
    finally:
        machine.close()


def test_the_gpu_and_the_cpu_agree(model: Path, tmp_path: Path) -> None:
    small_artifact(model, tmp_path / "out", gpu="auto", kv_dtype="fp32")
    ids = list(range(3, 40))
    with amk.load(tmp_path / "out", device="cpu") as cpu, amk.load(tmp_path / "out", device="cuda") as cuda:
        expected, got = cpu.logits(ids), cuda.logits(ids)
    assert abs(got - expected).max() < 1e-4 * abs(expected).max()
