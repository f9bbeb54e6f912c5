"""Which kernels and device tables can run over the weights that were loaded for others."""

from __future__ import annotations

from typing import Any

from schedule_ir.codec import Tables

KERNEL_ONLY = frozenset(
    {
        "in_flight",
        "in_flight_low",
        "stocked",
        "prefetch_chunks",
        "prefetch_clocks",
        "loaded_tiles",
        "ring_stages",
        "reduce_slots",
        "shared_bytes",
    }
)
"""Of a Program's config: nothing but the kernel's own constants and its shared memory follow from these."""


def difference(loaded: Tables, other: Tables) -> str | None:
    """In what `other` needs other weights, or other memory, than what was loaded for the first; None if in nothing.

    Its tasks may be others: where the bytes of the tapes are the same ones, who reads them when is in the tables alone.
    """
    for name in ("tiles", "norms", "biases", "scalars", "kv_dtype"):
        if loaded.header[name] != other.header[name]:
            return name
    first, second = _shared_config(loaded), _shared_config(other)
    changed = [name for name in sorted(first.keys() | second.keys()) if first.get(name) != second.get(name)]
    return f"config {changed[0]}" if changed else None


def _shared_config(tables: Tables) -> dict[str, Any]:
    return {name: value for name, value in tables.header["config"].items() if name not in KERNEL_ONLY}
