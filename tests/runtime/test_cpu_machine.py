"""The contract of a launch, on the CPU machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from amk.errors import DeviceError, UsageError
from amk.model.source import open_model
from amk.runtime.cpu import CpuMachine
from amk.runtime.machine import Launch, LaunchResult
from schedule_ir import encode
from tests.runtime.models import machine_of, program_of, reference_logits, save_model, tokens_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path)
    return path


@pytest.fixture
def machine(folder: Path) -> CpuMachine:
    return machine_of(folder)[0]


def run(machine: CpuMachine, launch: Launch) -> LaunchResult:
    seen: list[int] = []
    result = machine.run(launch, seen.append)
    assert seen == result.tokens
    return result


def test_prompt_then_greedy_tokens(machine: CpuMachine, tmp_path: Path) -> None:
    reference, ids = save_model(tmp_path), tokens_of(5)
    result = run(machine, Launch(0, ids, 12, 4))
    assert (result.steps_done, result.stopped, len(result.tokens), result.logits) == (12, "length", 8, None)
    expected = list(ids)
    for _ in range(8):
        expected.append(int(reference_logits(reference, expected)[-1].argmax()))
    assert result.tokens == expected[5:]


def test_many_launches_equal_one(machine: CpuMachine) -> None:
    ids = tokens_of(30)
    whole = run(machine, Launch(0, ids, 50, 0, want_logits=True))
    machine.reset(30)
    parts = [run(machine, Launch(pos, ids[pos : pos + 7], 7, 0, want_logits=True)) for pos in (0, 7, 14)]
    parts.append(run(machine, Launch(21, ids[21:], 12, 0, want_logits=True)))
    parts.append(run(machine, Launch(33, parts[-1].tokens[-1:], 17, 0, want_logits=True)))
    logits = [part.logits for part in parts if part.logits is not None]
    assert whole.logits is not None
    assert np.array_equal(np.concatenate(logits), whole.logits)
    assert parts[-2].tokens[-4:] + parts[-1].tokens == whole.tokens


def test_head_runs_only_where_it_is_asked_for(machine: CpuMachine) -> None:
    ids = tokens_of(10)
    result = run(machine, Launch(0, ids, 10, 8, want_logits=True))
    assert result.logits is not None
    assert result.logits.shape == (2, 1003)
    assert len(result.tokens) == 1  # step 8 samples too, but the token after it is given
    nothing = run(machine, Launch(0, ids, 10, 10, want_logits=True))
    assert nothing.logits is not None
    assert nothing.logits.shape == (0, 1003)
    assert nothing.tokens == []


def test_stops_after_emitting_a_stop_id(machine: CpuMachine) -> None:
    free = run(machine, Launch(0, [5], 20, 0)).tokens
    stop = next(token for token in free if token not in free[:3])
    result = run(machine, Launch(0, [5], 20, 0, stop_ids=(stop,)))
    assert result.tokens == free[: free.index(stop) + 1]
    assert (result.stopped, result.steps_done) == ("stop", len(result.tokens))


def test_stops_when_asked(machine: CpuMachine) -> None:
    seen: list[int] = []
    result = machine.run(Launch(0, [5], 20, 0, should_stop=lambda: len(seen) == 3), seen.append)
    assert (result.stopped, result.steps_done, len(seen)) == ("cancelled", 3, 3)


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (Launch(95, [1], 6, 0), "there are 100"),
        (Launch(-1, [1], 1, 0), "there are 100"),
        (Launch(0, [1], 0, 0), "there are 100"),
        (Launch(0, [], 1, 0), "no token for step 0"),
        (Launch(0, [1, 2], 3, 2), "no token for step 2"),
        (Launch(0, [1003], 1, 0), "1003"),
        (Launch(0, [-1], 1, 0), "-1"),
    ],
)
def test_impossible_launches_are_refused(machine: CpuMachine, launch: Launch, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        machine.run(launch, lambda _: None)


def test_kv_overflow_names_layer_position_and_way_out(tmp_path: Path) -> None:
    import torch

    reference = save_model(tmp_path, attention_bias=True)
    with torch.no_grad():
        reference.model.layers[1].self_attn.v_proj.bias[3] = 70_000.0
    reference.save_pretrained(tmp_path)
    message = "V of layer 1 at position 0 .* too large for fp16 .*--kv-dtype bf16"
    with pytest.raises(DeviceError, match=message):
        machine_of(tmp_path, "fp16")[0].run(Launch(0, [1, 2], 2, 0), lambda _: None)
    assert run(machine_of(tmp_path, "bf16")[0], Launch(0, [1, 2], 2, 0)).steps_done == 2


def test_nan_logits_are_reported(tmp_path: Path) -> None:
    import torch

    reference = save_model(tmp_path)
    with torch.no_grad():
        reference.model.norm.weight[0] = float("nan")
    reference.save_pretrained(tmp_path)
    with pytest.raises(DeviceError, match="logit at position 0"):
        machine_of(tmp_path)[0].run(Launch(0, [1], 1, 0), lambda _: None)


def test_a_knobless_machine_has_one_split(folder: Path) -> None:
    # max_splits 1: attention writes its own output at every position, and nothing combines.
    from dataclasses import replace

    from amk.lower import lower
    from tests.runtime.models import H200, KNOBS

    model, ids = open_model(folder), tokens_of(40)
    single = CpuMachine(encode(lower(model.graph, H200, 100, "fp32", replace(KNOBS, max_splits=1))), model)
    several = CpuMachine(encode(program_of(model, "fp32")), model)
    results = [run(machine, Launch(0, ids, 40, 39, want_logits=True)).logits for machine in (single, several)]
    assert results[0] is not None
    assert results[1] is not None
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)
