"""Machines with random weights of real sizes, random K/V, and the fp32 reference beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import amk
from amk.artifact import Artifact
from amk.bench.reference import TorchReference, random_cache, set_cache
from amk.lower import Knobs
from amk.model.source import open_model
from amk.runtime.cuda import CudaMachine
from amk.runtime.cuda.driver import call, driver
from amk.runtime.machine import Launch
from tests.gpu.probe import poison
from tests.reference.steps import StepError, step_error

Config = dict[str, Any]
F32 = npt.NDArray[np.float32]

MAX_SEQ = 4096
SEED = 7
RERUNS = 20


def built(config: Config, kv_dtype: str, folder: Path, **knobs: int) -> Artifact:
    """The artifact of a config with random weights and these knobs, in its own folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    chosen = Knobs(**knobs) if knobs else None
    return amk.build(folder, max_seq=MAX_SEQ, kv_dtype=kv_dtype, random_weights=SEED, out=folder / "out", knobs=chosen)


@contextmanager
def opened(artifact: Artifact) -> Iterator[CudaMachine]:
    """The machine of an artifact that `built` made."""
    torch.cuda.init()
    machine = CudaMachine(artifact.tables, artifact.cubin, open_model(artifact.path.parent, SEED))
    try:
        yield machine
    finally:
        machine.close()
        torch.cuda.empty_cache()  # other tests share the GPU


def step_errors(artifact: Artifact, positions: Sequence[int]) -> dict[int, StepError]:
    """The errors at each position, with random K/V before it; every step is run again, to the same bits."""
    with opened(artifact) as machine:
        module = call(driver().cuModuleLoadData, artifact.cubin)
        return _errors(machine, TorchReference(machine.model, MAX_SEQ, module), positions)


def _errors(machine: CudaMachine, reference: TorchReference, positions: Sequence[int]) -> dict[int, StepError]:
    errors, cache = {}, random_cache(machine, SEED)
    for pos in sorted(positions, reverse=True):
        for rows in cache:
            rows[:, :, pos:] = float("nan")  # rows that must not be read
        set_cache(machine, *cache)
        step = (1234 + pos) % machine.vocab, pos
        logits = _run(machine, *step)
        errors[pos] = step_error(machine, reference, machine.program.kv_dtype, step, logits, cache)
        for _ in range(RERUNS):
            assert np.array_equal(_run(machine, *step), logits), f"position {pos}: a rerun differs"
    return errors


def check(artifact: Artifact, positions: Sequence[int]) -> None:
    """Assert that the step at each position is the reference's."""
    errors = step_errors(artifact, positions)
    text = "; ".join(f"{pos}: {error}" for pos, error in errors.items())
    print(artifact.path, text)
    assert all(error.close for error in errors.values()), text


def _run(machine: CudaMachine, token: int, pos: int) -> F32:
    """Logits of one step, whose outputs are poisoned before."""
    poison(machine, kv=False)
    logits = machine.run(Launch(pos, [token], 1, 0, want_logits=True), lambda _: None).logits
    assert logits is not None
    return logits[0]


def decode(machine: CudaMachine, first: int, launches: Sequence[int]) -> tuple[list[int], F32]:
    """(tokens, logits [steps, vocab]) of greedy decoding from position `first`, in launches of these sizes."""
    set_cache(machine, *random_cache(machine, SEED))
    tokens, rows, pos = [99], [], first
    for steps in launches:
        result = machine.run(Launch(pos, tokens[-1:], steps, 0, want_logits=True), lambda _: None)
        assert result.logits is not None
        rows.append(result.logits)
        tokens += result.tokens
        pos += steps
    return tokens[1:], np.concatenate(rows)
