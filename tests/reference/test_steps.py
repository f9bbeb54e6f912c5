"""Steps of the CPU machine against the reference over the machine's own cache, with every K/V type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from amk.bench.reference import TorchReference  # noqa: E402
from amk.runtime.cpu import CpuMachine  # noqa: E402
from amk.runtime.machine import Launch  # noqa: E402
from tests.reference.steps import BOUND, StepError, step_error  # noqa: E402
from tests.runtime.models import machine_of, save_model, tokens_of  # noqa: E402

IDS = tokens_of(40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path, num_hidden_layers=4)
    return path


class Run:
    """A prompt on a CPU machine, and the reference beside it."""

    def __init__(self, folder: Path, kv_dtype: str) -> None:
        self.kv_dtype = kv_dtype
        self.machine, model = machine_of(folder, kv_dtype)
        self.reference = TorchReference(model, self.machine.max_seq, device="cpu")
        logits = self.machine.run(Launch(0, IDS, len(IDS), 0, want_logits=True), lambda _: None).logits
        assert logits is not None
        self.logits = logits

    def error(self, pos: int) -> StepError:
        """Of the step at `pos`."""
        cache = torch.from_numpy(self.machine.kv_rows(0, len(IDS)))
        cache[:, :, :, pos:] = float("nan")
        return step_error(
            self.machine, self.reference, self.kv_dtype, (IDS[pos], pos), self.logits[pos], (cache[0], cache[1])
        )


@pytest.mark.parametrize("kv_dtype", ["fp16", "bf16", "fp32"])
def test_every_step_is_the_references(folder: Path, kv_dtype: str) -> None:
    run = Run(folder, kv_dtype)
    errors = {pos: run.error(pos) for pos in range(len(IDS))}
    assert all(error.close for error in errors.values()), errors


@pytest.mark.parametrize("kv_dtype", ["fp16", "bf16"])
def test_an_element_one_unit_off_is_noticed(folder: Path, kv_dtype: str) -> None:
    run = Run(folder, kv_dtype)
    row = _cached(run.machine, "keys")[3, 7]  # layer 1, head 1, position 7
    largest = np.abs(row).argmax()
    row[largest] += np.abs(row[largest]) * (2**-10 if kv_dtype == "fp16" else 2**-7)
    row[largest] = torch.tensor(row[largest]).to(torch.float16 if kv_dtype == "fp16" else torch.bfloat16).float()
    assert run.error(7).row > BOUND


def test_rows_of_another_position_are_noticed(folder: Path) -> None:
    run = Run(folder, "bf16")
    values = _cached(run.machine, "values")
    values[0, 7] = values[0, 8]
    assert run.error(7).row > 0.1


def test_wrong_logits_are_noticed(folder: Path) -> None:
    run = Run(folder, "bf16")
    run.logits[7] *= 1.0003
    assert run.error(7).logits > BOUND


def _cached(machine: CpuMachine, name: str) -> np.ndarray:  # type: ignore[type-arg]
    """The cache itself, [layers * kv_heads, positions, head_dim]."""
    cached: np.ndarray = getattr(machine._kv, name)  # type: ignore[type-arg]
    return cached
