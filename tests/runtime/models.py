"""Small Llama models with a fp32 reference, lowered and loaded on the CPU machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.lower import Knobs, lower
from amk.model.random_checkpoint import RandomCheckpoint
from amk.model.source import Model, open_model
from amk.model.walker import walk
from amk.runtime.cpu import CpuMachine
from amk.runtime.machine import Launch
from amk.runtime.session import Session
from schedule_ir import Program, Section, Target, Task, encode
from schedule_ir.op import Lane

H200 = Target("h200", "sm_90", "sm90", 132, 232448, 62914560, 141 << 30, 4.59e12)
KNOBS = Knobs(min_split_rows=16)
"""Several attention splits from position 17 on, as a real model has from 65 on."""

PLAIN: dict[str, Any] = {
    "vocab_size": 1003,
    "hidden_size": 72,
    "intermediate_size": 200,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
"""Nothing here is a multiple of the tile sizes that need not be."""


def save_model(folder: Path, **changes: Any) -> Any:
    """Save a random transformers model to `folder` and return it: bf16 weights, fp32 norms and biases.

    The weights are large enough for attention to be far from uniform.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**(PLAIN | changes))).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name:
                value.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                value.normal_(0, 0.3)
            else:
                value.normal_(0, 0.8 * value.shape[1] ** -0.5)
                value.copy_(value.bfloat16().float())
    model.save_pretrained(folder)
    return model


def reference_logits(model: Any, ids: list[int]) -> npt.NDArray[np.float32]:
    """float32 [len(ids), vocab] of transformers in fp32."""
    import torch

    with torch.no_grad():
        logits: npt.NDArray[np.float32] = model(torch.tensor([ids])).logits[0].numpy()
    return logits


def relative_error(got: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    """The largest relative error (2-norm) of any row."""
    return float((np.linalg.norm(got - expected, axis=-1) / np.linalg.norm(expected, axis=-1)).max())


def random_model(**changes: Any) -> Model:
    """A Llama of PLAIN's sizes with amk's own random weights: made in no time, for tests that need no reference."""
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rope_theta": 1e4}
    graph = walk(PLAIN | llama | changes, None)
    return Model(graph, RandomCheckpoint(graph, 7), Path("random"), "random", None)


def logits_with(model: Model, ids: list[int], sms: int = 132, **knobs: int) -> npt.NDArray[np.float32]:
    """float32 [len(ids), vocab] of the schedule with these knobs on an H200 of so many SMs, fp32 K/V."""
    machine = CpuMachine(encode(small_program(model, sms, **knobs)), model)
    logits = machine.run(Launch(0, ids, len(ids), 0, want_logits=True), lambda _: None).logits
    assert logits is not None
    return logits


def small_program(model: Model, sms: int = 132, **knobs: int) -> Program:
    """The schedule with these knobs on an H200 of so many SMs: 100 positions, fp32 K/V."""
    return lower(model.graph, replace(H200, sms=sms), 100, "fp32", replace(KNOBS, **knobs))


def program_of(model: Model, kv_dtype: str = "fp16", max_seq: int = 100) -> Program:
    """The default schedule on an H200."""
    return lower(model.graph, H200, max_seq, kv_dtype, KNOBS)


def machine_of(folder: Path, kv_dtype: str = "fp16", max_seq: int = 100) -> tuple[CpuMachine, Model]:
    """The CPU machine of a saved model."""
    model = open_model(folder)
    return CpuMachine(encode(program_of(model, kv_dtype, max_seq)), model), model


def session_of(folder: Path, kv_dtype: str = "fp16", max_seq: int = 100) -> Session:
    """A session on the CPU machine of a saved model."""
    machine, model = machine_of(folder, kv_dtype, max_seq)
    return Session(machine, model.graph)


def tokens_of(count: int, vocab: int = 1003) -> list[int]:
    """Some token ids."""
    return [int(i) for i in np.random.default_rng(count).integers(0, vocab, count)]


def edited(program: Program, sm: int, lane: Lane, tasks: list[Task], section: Section = Section.BODY) -> Program:
    """The program with other tasks in one lane."""
    return replace(program, lanes={**program.lanes, (sm, lane, section): tuple(tasks)})
