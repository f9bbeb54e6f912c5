"""Configs of well-known sizes, for models with random weights: those that are benchmarked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SHAPES = Path(__file__).parent.parent.parent / "benchmarks" / "shapes.json"

_REST: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 65536,
    "eos_token_id": 2,
}

CONFIGS: dict[str, dict[str, Any]] = {
    name: _REST | sizes for name, sizes in json.loads(SHAPES.read_text(encoding="utf-8")).items()
}
