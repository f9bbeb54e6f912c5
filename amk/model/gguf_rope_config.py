"""Rotary embedding settings of a GGUF file as a config's rope_parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import UnsupportedModelError
from amk.model.gguf_arch import GgufArch
from amk.model.gguf_rope import rope_scaling_from_divisors
from amk.model.gguf_settings import GgufSettings

LLAMA3_TENSOR = "rope_freqs.weight"
LONGROPE_TENSORS = ("rope_factors_long.weight", "rope_factors_short.weight")
ROPE_TENSORS = (LLAMA3_TENSOR, *LONGROPE_TENSORS)

Divisors = Mapping[str, npt.NDArray[np.float32]]

_YARN = {
    "rope.scaling.yarn_attn_factor": "attention_factor",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
ROPE_SETTINGS = frozenset(
    (
        "rope.freq_base", "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear",
        "rope.scaling.original_context_length", "rope.scaling.attn_factor", *_YARN,
    )
)  # fmt: skip
LOCAL_THETA = "rope.freq_base_swa"


def rope_config(settings: GgufSettings, arch: GgufArch, divisors: Divisors) -> dict[str, Any]:
    """rope_parameters, those of sliding layers apart where they differ. `divisors` are the tensors of ROPE_TENSORS.

    Raises UnsupportedModelError for a scaling that amk does not implement.
    """
    theta = settings.number("rope.freq_base", 10000.0)
    full = {"rope_theta": theta, **_scaling(settings, divisors, theta)}
    if arch.local_theta is None:
        return {"rope_parameters": full}
    local = {"rope_type": "default", "rope_theta": settings.number(LOCAL_THETA, arch.local_theta(theta))}
    return {"rope_parameters": {"full_attention": full, "sliding_attention": local}}


def _scaling(settings: GgufSettings, divisors: Divisors, theta: float) -> dict[str, Any]:
    """rope_type and what belongs to it; llama3 scaling and LongRoPE are tensors of divisors."""
    kind = settings.text("rope.scaling.type", "none")
    factor = settings.number("rope.scaling.factor", settings.number("rope.scale_linear", 1.0))
    if kind == "none" and "rope.scale_linear" in settings:
        kind = "linear"
    if set(divisors) == set(LONGROPE_TENSORS):
        return _longrope(settings, divisors)
    if settings.number("rope.scaling.attn_factor", 1.0) != 1 or not set(divisors) <= {LLAMA3_TENSOR}:
        raise UnsupportedModelError(
            f"{settings.path}: rope.scaling.attn_factor = {settings.values.get('rope.scaling.attn_factor')} with "
            f"{', '.join(divisors) or 'no divisors'} is not supported; "
            f"supported: {' and '.join(LONGROPE_TENSORS)}, or {LLAMA3_TENSOR}"
        )
    llama3 = rope_scaling_from_divisors(divisors[LLAMA3_TENSOR], theta) if divisors else None
    scaled = _scaled(settings, kind, factor)
    if scaled and llama3:
        raise UnsupportedModelError(
            f"{settings.path}: has both {kind} rope scaling and {LLAMA3_TENSOR}, which amk lacks; "
            "use the safetensors checkpoint"
        )
    return scaled or llama3 or {"rope_type": "default"}


def _scaled(settings: GgufSettings, kind: str, factor: float) -> dict[str, Any]:
    """Linear and YaRN scaling; empty where the file asks for none."""
    if kind == "yarn":
        given = {name: settings.number(key, 0.0) for key, name in _YARN.items() if key in settings}
        length = settings.integer("rope.scaling.original_context_length", settings.integer("context_length", 0))
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length, **given}
    if kind not in ("none", "linear") or (kind == "none" and factor not in (0.0, 1.0)):
        raise UnsupportedModelError(
            f"{settings.path}: {settings.name}.rope.scaling.type = {kind!r} with factor {factor} is not supported; "
            "supported: none, linear, yarn, and llama3 as rope_freqs.weight"
        )
    return {"rope_type": "linear", "factor": factor} if factor not in (0.0, 1.0) else {}


def _longrope(settings: GgufSettings, divisors: Divisors) -> dict[str, Any]:
    long, short = ([float(value) for value in divisors[name]] for name in LONGROPE_TENSORS)
    given = "rope.scaling.attn_factor" in settings
    factor = settings.number("rope.scaling.attn_factor", 1.0) if given else None
    return {"rope_type": "longrope", "long_factor": long, "short_factor": short, "attention_factor": factor}
