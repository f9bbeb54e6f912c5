"""Which layers of a GGUF model see a sliding window only."""

from __future__ import annotations

from typing import Any

from amk.model.gguf_arch import Windows
from amk.model.gguf_settings import GgufSettings

WINDOW, PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"


def windows_config(settings: GgufSettings, windows: Windows) -> dict[str, Any]:
    """sliding_window and, where not all layers slide, layer_types. Raises UnsupportedModelError."""
    layers = settings.integer("block_count", 0)
    window = settings.integer(WINDOW, windows.unsaid(layers))
    if windows.period == 0:
        return {"sliding_window": window or None}
    slides = _slides(settings, windows.period, layers) if window else [False] * layers
    types = ["sliding_attention" if flag else "full_attention" for flag in slides]
    return {"sliding_window": window or None, "layer_types": types}


def _slides(settings: GgufSettings, period: int, layers: int) -> list[bool]:
    """Whether each layer slides: from the file's pattern, a flag per layer or another period, else by `period`."""
    pattern = settings.values.get(PATTERN, period)
    if isinstance(pattern, list) and len(pattern) == layers and all(flag in (0, 1) for flag in pattern):
        return [bool(flag) for flag in pattern]
    if isinstance(pattern, bool) or not isinstance(pattern, int) or pattern < 1:
        raise settings.refused(PATTERN, f"{layers} flags, or after how many layers one sees everything")
    return [(index + 1) % pattern != 0 for index in range(layers)]
