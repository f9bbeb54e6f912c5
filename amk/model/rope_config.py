"""Rotary embedding settings of a config.json, in the old and in the transformers-5 style, as a `Rope`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from amk.errors import UnsupportedModelError
from amk.model.config import Config, read_float, read_int, refused_value, show
from amk.model.graph import Rope, RopeKind

DEFAULT_THETA = 10000.0  # transformers' default where a config names none

# Keys that each kind reads besides the ones every kind may carry.
_KEYS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}
_COMMON = ("type", "rope_type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings")


def parse_rope(config: Config, head_dim: int, max_position: int) -> Rope:
    """The rotary embedding that transformers computes for `config`. Raises UnsupportedModelError.

    `original_max_position` of the result is `max_position` except for llama3, the one kind here for which
    transformers reads `original_max_position_embeddings`.
    """
    settings = _settings(config)
    kind = _kind(settings)
    _check_keys(settings, kind, max_position)
    _check_partial(config, settings)
    if head_dim % 2 or (kind == "dynamic" and head_dim <= 2):
        raise refused_value("head_dim", head_dim, "an even number" + (" above 2" if kind == "dynamic" else ""))
    theta = read_float(settings, "rope_theta", read_float(config, "rope_theta", DEFAULT_THETA))
    if kind == "llama3":
        return _llama3(config, settings, head_dim, theta, max_position)
    factor = 1.0 if kind == "default" else read_float(settings, "factor")
    return Rope(kind, head_dim, theta, max_position, factor)


def _settings(config: Config) -> Mapping[str, Any]:
    """The one dictionary of settings: `rope_parameters` (new) or `rope_scaling` (old), empty where there is none."""
    found = {name: config[name] for name in ("rope_parameters", "rope_scaling") if config.get(name)}
    for name, value in found.items():
        if not isinstance(value, dict):
            raise refused_value(name, value, "null or an object with rope_type")
    if len(found) == 2 and found["rope_parameters"] != found["rope_scaling"]:
        raise UnsupportedModelError(
            f"config.json: rope_parameters = {show(found['rope_parameters'])} and rope_scaling = "
            f"{show(found['rope_scaling'])} disagree; keep one of them"
        )
    return cast("Mapping[str, Any]", next(iter(found.values()), {}))


def _kind(settings: Mapping[str, Any]) -> RopeKind:
    names = {settings[key] for key in ("rope_type", "type") if isinstance(settings.get(key), str)}
    if len(names) > 1:
        raise UnsupportedModelError(
            f"config.json: rope type = {show(settings.get('type'))} and rope_type = {show(settings.get('rope_type'))} "
            "disagree; keep one of them"
        )
    kind = names.pop() if names else "default"
    if kind not in _KEYS:
        raise refused_value("rope_type", kind, ", ".join(_KEYS))
    return cast("RopeKind", kind)


def _check_keys(settings: Mapping[str, Any], kind: str, max_position: int) -> None:
    """Refuse a setting that this kind of rope does not read, unless its value asks for nothing."""
    for key, value in settings.items():
        if key in _COMMON or key in _KEYS[kind] or value is None or (key.endswith("factor") and value == 1):
            continue
        raise refused_value(f"rope setting {key}", value, f"{', '.join(_COMMON + _KEYS[kind])} with rope_type {kind}")
    length = settings.get("original_max_position_embeddings")
    if kind == "dynamic" and length not in (None, max_position):
        # Versions of transformers disagree on which of the two lengths dynamic scaling starts from.
        raise refused_value("original_max_position_embeddings", length, f"{max_position} with rope_type dynamic")


def _check_partial(config: Config, settings: Mapping[str, Any]) -> None:
    for source in (settings, config):
        value = source.get("partial_rotary_factor")
        if value is not None and value != 1:
            raise refused_value("partial_rotary_factor", value, "1.0")


def _llama3(config: Config, settings: Mapping[str, Any], dim: int, theta: float, max_position: int) -> Rope:
    low, high = read_float(settings, "low_freq_factor"), read_float(settings, "high_freq_factor")
    if low >= high:
        raise refused_value("high_freq_factor", high, f"more than low_freq_factor ({low})")
    # A length beside the rope settings wins over the one in them, as in transformers.
    length = read_int(settings, "original_max_position_embeddings", max_position)
    length = read_int(config, "original_max_position_embeddings", length)
    return Rope("llama3", dim, theta, length, read_float(settings, "factor"), low, high)
