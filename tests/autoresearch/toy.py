"""A tiny model with random weights, lowered for an H200."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from amk.gpus import lookup
from amk.lower import Knobs, lower
from amk.model.source import Model, open_model
from schedule_ir import Program

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 72,
    "intermediate_size": 200,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1003,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


def save_toy(folder: Path, **changes: Any) -> Path:
    """The model's folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return folder


def toy_model(folder: Path, **changes: Any) -> Model:
    """The model."""
    return open_model(save_toy(folder, **changes), 7)


def toy_program(model: Model, knobs: Knobs | None = None, max_seq: int = 100) -> Program:
    """Its schedule."""
    return lower(model.graph, lookup("h200").as_target(), max_seq, "fp16", knobs)
