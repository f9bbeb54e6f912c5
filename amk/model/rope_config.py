"""Rotary embedding settings of a config.json, in the old and in the transformers-5 style, as a `Rope`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from amk.errors import UnsupportedModelError
from amk.model.config import Config, read_float, read_int, refused_value, show
from amk.model.graph import Rope, RopeKind
from amk.model.rope_scaling import BY_LENGTH, Settings

DEFAULT_THETA = 10000.0  # transformers' default where a config names none

# Keys that each kind reads besides the ones every kind may carry.
_KEYS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "longrope": ("factor", "attention_factor", "short_factor", "long_factor"),
}
_COMMON = ("type", "rope_type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
_LAYER_TYPES = ("full_attention", "sliding_attention")


def parse_rope(
    config: Config,
    head_dim: int,
    max_position: int,
    *,
    partial: bool = False,
    old_names: Mapping[str, str] | None = None,
) -> Rope:
    """The rotary embedding that transformers computes for `config`. Raises UnsupportedModelError.

    `partial`: the family can rotate a part of the head. `old_names` are kinds that the family calls by another name.
    `original_max_position` of the result is `max_position` for the kinds for which transformers does not read
    `original_max_position_embeddings`.
    """
    return _parse(config, _settings(config), head_dim, max_position, partial, old_names or {})


def parse_ropes_by_layer_type(
    config: Config, head_dim: int, max_position: int, theta: float, local_theta: float
) -> tuple[Rope, Rope]:
    """(rope of full-attention layers, rope of sliding ones), where scaling is for the full ones only (Gemma 3, OLMo 3).

    In the transformers-5 style `rope_parameters` holds one set of settings for each layer type; in the old style
    `rope_scaling` and `rope_theta` are for the full layers, `rope_local_base_freq` for the sliding ones. Raises
    UnsupportedModelError.
    """
    full, local = _by_layer_type(config)
    flat = {key: value for key, value in config.items() if key not in ("rope_parameters", "rope_scaling", "rope_theta")}
    theta = read_float(config, "rope_theta", theta)
    local_theta = read_float(config, "rope_local_base_freq", local_theta)
    return (
        _parse(flat, {"rope_theta": theta} | dict(full), head_dim, max_position, False, {}),
        _parse(flat, {"rope_theta": local_theta} | dict(local), head_dim, max_position, False, {}),
    )


def _by_layer_type(config: Config) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Settings of full-attention layers and of sliding ones, as far as they are apart from the rest of the config.

    transformers ignores one set of rope_parameters for all layers here, which cannot be what such a config means.
    """
    nested = config.get("rope_parameters") or {}
    if not isinstance(nested, dict) or not set(nested) <= set(_LAYER_TYPES):
        raise refused_value("rope_parameters", nested, f"an object with settings of {' and '.join(_LAYER_TYPES)}")
    if nested and config.get("rope_scaling"):
        raise UnsupportedModelError(
            f"config.json: rope_parameters = {show(nested)} and rope_scaling = {show(config['rope_scaling'])} are of "
            "different versions of transformers; keep one of them"
        )
    full, local = (_nested(nested, name) for name in _LAYER_TYPES)
    return full if nested else _settings(config), local


def _nested(settings: Mapping[str, Any], layer_type: str) -> Mapping[str, Any]:
    """The settings of a layer type, empty where there are none."""
    value = settings.get(layer_type)
    if value is not None and not isinstance(value, dict):
        raise refused_value(f"rope_parameters of {layer_type}", value, "null or an object with rope_type")
    return value or {}


def _parse(
    config: Config, settings: Mapping[str, Any], head_dim: int, max_position: int, partial: bool, old: Mapping[str, str]
) -> Rope:
    kind = _kind(settings, old)
    _check_keys(settings, kind, max_position)
    dim = _rotated(config, settings, head_dim, partial)
    if dim % 2 or (kind == "dynamic" and dim <= 2):
        raise refused_value("head_dim", head_dim, "an even number" + (" above 2" if kind == "dynamic" else ""))
    theta = read_float(settings, "rope_theta", read_float(config, "rope_theta", DEFAULT_THETA))
    if kind in BY_LENGTH:
        # A length beside the rope settings wins over the one in them, as in transformers.
        length = read_int(settings, "original_max_position_embeddings", max_position)
        length = read_int(config, "original_max_position_embeddings", length)
        return BY_LENGTH[kind](Settings(settings, dim, theta, length, max_position))
    factor = 1.0 if kind == "default" else read_float(settings, "factor")
    return Rope(kind, dim, theta, max_position, factor)


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


def _kind(settings: Mapping[str, Any], old: Mapping[str, str]) -> RopeKind:
    names = {settings[key] for key in ("rope_type", "type") if isinstance(settings.get(key), str)}
    names = {old.get(name, name) for name in names}
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


def _rotated(config: Config, settings: Mapping[str, Any], head_dim: int, partial: bool) -> int:
    """How many dimensions of a head are rotated."""
    share = read_float(settings, "partial_rotary_factor", read_float(config, "partial_rotary_factor", 1.0))
    if share > 1 or (share != 1 and not partial):
        raise refused_value("partial_rotary_factor", share, "up to 1.0" if partial else "1.0")
    return int(head_dim * share)
