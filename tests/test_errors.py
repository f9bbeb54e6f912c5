"""Bad input through the command line: one line (what, which value, what to do), the exit code, no traceback."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from amk.artifact import FILES, MANIFEST, Artifact, read_artifact, write_artifact
from amk.cli.main import cli
from tests import fake_gpu
from tests.fake_gpu import FakeGpu, NoDriver
from tests.model.builders import CONFIG, edit_json
from tests.small import MAX_SEQ, VOCAB, small_artifact, small_model

USAGE, MODEL, REJECTED, DEVICE, ARTIFACT = 2, 3, 4, 5, 6


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and an artifact of it, which no test may change."""
    folder = tmp_path_factory.mktemp("errors")
    small_artifact(small_model(folder / "model"), folder / "artifact")
    return folder


@pytest.fixture
def model(built: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may damage."""
    return Path(shutil.copytree(built / "model", tmp_path / "model"))


@pytest.fixture
def artifact(built: Path, tmp_path: Path) -> Path:
    """A copy of the artifact that a test may damage."""
    return Path(shutil.copytree(built / "artifact", tmp_path / "artifact"))


def fails(code: int, says: str, *args: object) -> None:
    """Run amk and assert that it fails with this exit code and one line that says this."""
    result = CliRunner().invoke(cli, [str(arg) for arg in args], prog_name="amk")
    assert result.exit_code == code, result.output
    lines = result.stderr.splitlines()
    assert lines[-1].startswith("amk: "), result.stderr
    assert says in lines[-1]
    assert sum(line.startswith("amk: ") for line in lines) == 1
    assert "Traceback" not in result.output


def build(model: Path, *options: object) -> tuple[object, ...]:
    return ("build", model, "--gpu", "h200", "--max-seq", MAX_SEQ, "--out", model.parent / "out", *options)


def generate(artifact: Path, ids: str = "1 2 3", *options: object) -> tuple[object, ...]:
    return ("generate", artifact, "--ids", "--prompt", ids, "--device", "cpu", "--max-new-tokens", 4, *options)


def test_the_commands_work_when_nothing_is_wrong(model: Path) -> None:
    for args in (build(model), generate(model.parent / "out")):
        result = CliRunner().invoke(cli, [str(arg) for arg in args], prog_name="amk")
        assert result.exit_code == 0, result.output
    assert len(result.stdout.split()) == 4


# The checkpoint


def without_weights(model: Path) -> None:
    (model / "model.safetensors").unlink()


def truncated(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def rewritten(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(model: Path) -> None:
        from safetensors.torch import load_file, save_file

        path = model / "model.safetensors"
        tensors = {name: value.clone() for name, value in load_file(path).items()}
        change(tensors)
        save_file(tensors, path)

    return apply


def wrong_shape(tensors: dict[str, Any]) -> None:
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:63].clone()


def wrong_dtype(tensors: dict[str, Any]) -> None:
    import torch

    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = tensors[name].to(torch.int8)


def config(**changes: object) -> Callable[[Path], None]:
    return lambda model: edit_json(model / "config.json", **changes)


CHECKPOINTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing safetensors": (without_weights, "no model.safetensors"),
    "truncated safetensors": (truncated, "(truncated?)"),
    "wrong shape": (rewritten(wrong_shape), "model.norm.weight has shape [63], config.json asks for [64]"),
    "wrong dtype": (rewritten(wrong_dtype), "up_proj.weight has dtype I8; supported: BF16, F16, F32, F64"),
    "unknown architecture": (
        config(architectures=["MambaForCausalLM"], model_type="mamba"),
        "MambaForCausalLM is not supported",
    ),
    "a field that changes the computation": (config(sliding_window=128), "sliding_window = 128 is not supported"),
    "an unknown field": (config(new_trick=1), "new_trick = 1 is a field that amk does not know"),
    "custom code": (config(auto_map={"AutoModelForCausalLM": "m.M"}), "its own Python code, which amk never runs"),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_bad_checkpoints(model: Path, case: str) -> None:
    damage, says = CHECKPOINTS[case]
    damage(model)
    fails(MODEL, says, *build(model))
    assert not (model.parent / "out").exists()


def test_no_such_model(tmp_path: Path) -> None:
    fails(USAGE, "no such folder or file", *build(tmp_path / "nothing"))


# The request


def test_unknown_gpu(model: Path) -> None:
    fails(USAGE, "no GPU called 'h20'; did you mean h200", "build", model, "--gpu", "h20")


def test_max_seq_beyond_the_model(model: Path) -> None:
    fails(USAGE, "--max-seq 257: the model was made for at most 256", "build", model, "--gpu", "l4", "--max-seq", 257)


def test_something_else_is_at_out(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("precious")
    fails(ARTIFACT, "exists and is no artifact; choose another --out", *build(model, "--force"))
    assert (tmp_path / "out" / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (" ", "the prompt holds no token id"),
        ("1 " * (MAX_SEQ + 1), f"the prompt has {MAX_SEQ + 1} tokens, the artifact takes {MAX_SEQ}; shorten it"),
        (f"1 {VOCAB}", f"token id {VOCAB} is out of range; this model has 0 to {VOCAB - 1}"),
        ("1 -1", "'-1' is not a token id"),
    ],
)
def test_bad_prompts(artifact: Path, ids: str, says: str) -> None:
    fails(USAGE, says, *generate(artifact, ids))


def test_empty_prompt(artifact: Path) -> None:
    fails(USAGE, "--prompt is empty", "generate", artifact, "--prompt", "", "--device", "cpu")


def test_text_for_a_model_without_a_tokenizer(artifact: Path) -> None:
    says = "without a tokenizer; give the prompt as token ids"
    fails(USAGE, says, "generate", artifact, "--prompt", "Hi", "--device", "cpu")


# The artifact


def test_checkpoint_changed_since_the_build(tmp_path: Path) -> None:
    model = small_model(tmp_path / "model")
    small_artifact(model, tmp_path / "artifact")
    rewritten(lambda tensors: tensors["model.norm.weight"].mul_(2))(model)
    fails(ARTIFACT, "changed since", *generate(tmp_path / "artifact"))
    shutil.rmtree(model)
    fails(ARTIFACT, "its checkpoint cannot be opened", *generate(tmp_path / "artifact"))


@pytest.mark.parametrize("name", FILES)
def test_artifact_edited(artifact: Path, name: str) -> None:
    path = artifact / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    fails(ARTIFACT, f"{name}: changed since the build; build the artifact again", *generate(artifact))
    path.unlink()
    fails(ARTIFACT, f"{name}: No such file or directory; build the artifact again", *generate(artifact))


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "not readable"), ("[]", "not an artifact of format"), ('{"format": 99}', "not an artifact of format")],
)
def test_bad_manifest(artifact: Path, text: str, says: str) -> None:
    (artifact / MANIFEST).write_text(text)
    for command in (generate(artifact), ("inspect", artifact), ("validate", artifact)):
        fails(ARTIFACT, says, *command)


def test_no_artifact(tmp_path: Path) -> None:
    fails(ARTIFACT, "no such folder; make an artifact with amk build", *generate(tmp_path / "nothing"))
    fails(ARTIFACT, "manifest.json: No such file or directory", *generate(tmp_path))


def rewrite(path: Path, old: Artifact, **changes: Any) -> None:
    """Write an artifact with changes, and hashes that fit them."""
    new = replace(old, **changes)
    manifest = {key: value for key, value in old.manifest.items() if key not in ("format", "sha256")}
    write_artifact(path, manifest, new.tables, new.source, new.cubin, new.certificate)


def test_tables_that_were_not_proved(artifact: Path) -> None:
    """Someone swaps two weight copies and writes the artifact anew, hashes and all: the certificate is of others."""
    old = read_artifact(artifact)
    records = old.tables.records.copy()
    opcode = next(i for i, variant in enumerate(old.program.variants) if variant.op == "copy_tape")
    pair = np.flatnonzero(records[:, 0] == opcode)[:2]
    records[pair] = records[pair[::-1]]
    rewrite(artifact, old, tables=replace(old.tables, records=records))
    fails(REJECTED, "not proved: certificate tables_sha256 is", *generate(artifact))
    fails(REJECTED, "rejected by rule", "validate", artifact)


def test_unsafe_runs_what_was_not_proved(artifact: Path) -> None:
    rewrite(artifact, read_artifact(artifact), certificate={})
    fails(REJECTED, "--unsafe) runs it anyway", *generate(artifact))
    result = CliRunner().invoke(cli, [str(arg) for arg in generate(artifact, "1 2", "--unsafe")], prog_name="amk")
    assert result.exit_code == 0


# The disk


@pytest.mark.parametrize("replacing", [False, True])
def test_disk_full(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replacing: bool) -> None:
    """No half artifact is left; an artifact that was there before still is."""
    out = tmp_path / "out"
    if replacing:
        shutil.copytree(built / "artifact", out)
    write = Path.write_bytes

    def write_bytes(path: Path, data: bytes) -> int:
        if path.name == "kernel.cubin":
            write(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    says = f"{out}: cannot be written: No space left on device; free space or choose --out"
    fails(ARTIFACT, says, "build", built / "model", "--gpu", "h200", "--max-seq", MAX_SEQ, "--out", out, "--force")
    assert sorted(path.name for path in tmp_path.iterdir()) == (["out"] if replacing else [])
    if replacing:
        assert read_artifact(out).cubin == read_artifact(built / "artifact").cubin


def test_out_cannot_be_made(model: Path) -> None:
    (model.parent / "file").write_text("")
    fails(ARTIFACT, "cannot be written: File exists", *build(model)[:-1], model.parent / "file" / "out")


# The GPU

GPUS: dict[str, tuple[FakeGpu | NoDriver, str]] = {
    "no driver": (NoDriver(), "no NVIDIA driver on this machine (libcuda.so.1 not found); install driver 580 or newer"),
    "no GPU": (FakeGpu(count=0), "the driver sees no GPU"),
    "driver too old": (FakeGpu(cuda=12040), "too old for CUDA 13; install driver 580 or newer"),
    "other architecture": (
        FakeGpu("NVIDIA L4", COMPUTE_CAPABILITY_MAJOR=8, COMPUTE_CAPABILITY_MINOR=9, MULTIPROCESSOR_COUNT=58),
        "this artifact is for h200 (sm_90), the GPU is NVIDIA L4 (sm_89); build again",
    ),
    "fewer SMs": (
        FakeGpu("NVIDIA H200 MIG", MULTIPROCESSOR_COUNT=15),
        "this artifact needs 16 SMs (h200), NVIDIA H200 MIG has 15; build again",
    ),
    "no cooperative launch": (FakeGpu(COOPERATIVE_LAUNCH=0), "cannot launch cooperative kernels"),
    "too little free memory": (FakeGpu(free=1 << 20), "GiB needed (weights 0.00, K/V 0.00, loading 0.00), 0.00 of"),
}


@pytest.mark.parametrize("case", GPUS)
def test_gpus_that_do_not_fit(artifact: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    fake, says = GPUS[case]
    fake_gpu.use(monkeypatch, fake)
    fails(DEVICE, says, *generate(artifact), "--device", "cuda")
    if isinstance(fake, FakeGpu):
        assert "cuMemAlloc" not in fake.calls


def test_build_for_this_gpu_without_one(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpu.use(monkeypatch, NoDriver())
    fails(DEVICE, "--gpu auto: no NVIDIA driver on this machine", "build", model)


def test_model_too_large_for_the_gpu(tmp_path: Path) -> None:
    big = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | big))
    says = "GiB of GPU memory needed (weights 125.6, K/V of 256 positions 0.0), l4 has 22.5; use a GPU with more"
    fails(DEVICE, says, "build", tmp_path, "--gpu", "l4", "--random-weights", 0, "--out", tmp_path / "out")


@pytest.mark.parametrize("name", ["", "program.json"])
def test_a_sound_artifact_is_accepted(artifact: Path, name: str) -> None:
    result = CliRunner().invoke(cli, ["validate", str(artifact / name), "--json"], prog_name="amk")
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (0, True)


def test_a_real_process_prints_one_line_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "amk", "generate", str(tmp_path / "nothing"), "--prompt", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (ARTIFACT, "")
    assert done.stderr == f"amk: {tmp_path / 'nothing'}: no such folder; make an artifact with amk build\n"
