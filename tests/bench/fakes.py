"""A machine and readings without a GPU, and a small program with its result."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from amk.artifact import Artifact
from amk.gpus import lookup
from amk.lower import lower
from amk.model.graph import ModelGraph
from amk.model.walker import walk
from amk.runtime.machine import Launch, LaunchResult
from schedule_ir import Program, encode

TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "eos_token_id": 0,
}


def graph(**changes: Any) -> ModelGraph:
    """A tiny model."""
    return walk(TINY | changes, None)


def program(max_seq: int = 1024, **changes: Any) -> Program:
    """Its schedule on an H200."""
    return lower(graph(**changes), lookup("h200").as_target(), max_seq)


def artifact(max_seq: int = 1024) -> Artifact:
    """Its artifact, without a kernel."""
    manifest = {
        "model": {"path": "/some/where/tiny", "random_seed": 7},
        "build": {"kernels_sha256": "k", "model_digest": "d", "knobs": {}, "max_seq": max_seq, "kv_dtype": "fp16"},
        "compiler": {"nvrtc": "13.0", "resources": {}},
        "sha256": {"kernel.cubin": "c"},
    }
    return Artifact(Path("/some/where/artifact"), manifest, encode(program(max_seq)), "", b"", {})


@dataclass
class FakeMachine:
    """Every launch takes the next of `times` (milliseconds, in a cycle) and yields the next of `tokens`."""

    times: list[float] = field(default_factory=lambda: [64.0])
    tokens: list[list[int]] = field(default_factory=lambda: [[1, 2, 3]])
    logits: list[float] = field(default_factory=lambda: [0.5])
    last_launch_ms: float = 0.0
    launches: list[Launch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._times, self._tokens = itertools.cycle(self.times), itertools.cycle(self.tokens)
        self._logits = itertools.cycle(self.logits)

    def run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        self.launches.append(launch)
        self.last_launch_ms = next(self._times)
        logits = np.full((launch.steps, 4), next(self._logits), np.float32) if launch.want_logits else None
        tokens = list(next(self._tokens))
        for token in tokens:
            on_token(token)
        return LaunchResult(tokens, logits, launch.steps, "length")


class FakeReadings:
    """A counter that moves by 30 J at every reading."""

    def __init__(self) -> None:
        self._joules = itertools.count(0, 30)

    def joules(self) -> float | None:
        return float(next(self._joules))

    def state(self) -> dict[str, Any]:
        return {"sm_mhz": 1980}


class NoReadings:
    """A GPU without a counter."""

    def joules(self) -> float | None:
        return None

    def state(self) -> dict[str, Any]:
        return {}
