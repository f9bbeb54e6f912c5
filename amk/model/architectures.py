"""Which family of models a config belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amk.errors import UnsupportedModelError
from amk.model.families import FAMILIES, Family
from amk.model.refusals import refusal_reason

_BY_NAME = {name: family for family in FAMILIES.values() for name in (family.architecture, *family.old_names)}
_BY_TYPE = {family.model_type: family for family in FAMILIES.values()}


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a config. Raises UnsupportedModelError naming the architecture that it found and the reason."""
    found, model_type = config.get("architectures"), config.get("model_type")
    if found is None and isinstance(model_type, str) and model_type in _BY_TYPE:
        return _BY_TYPE[model_type]
    if not isinstance(found, list | tuple) or not found or not all(isinstance(name, str) for name in found):
        raise UnsupportedModelError(
            f"config.json: architectures = {found!r} (model_type {model_type!r}) names no architecture; {_supported()}"
        )
    for name in found:
        if name not in _BY_NAME:
            raise UnsupportedModelError(f"architecture {name} is not supported: {refusal_reason(name)}; {_supported()}")
    family = _BY_NAME[found[0]]
    if model_type not in (None, family.model_type):
        raise UnsupportedModelError(
            f"config.json: model_type = {model_type!r} contradicts architectures = {list(found)}; "
            f'"{family.model_type}" is expected'
        )
    return family


def _supported() -> str:
    return "supported: " + ", ".join(FAMILIES)
