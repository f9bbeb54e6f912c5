"""A result as a table for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def text_of(data: Row) -> str:
    """The whole result: where it is from, the ceiling, the table, what is missing."""
    return "\n".join([*_head(data), "", *table(_columns(data)), "", *_notes(data)]).rstrip()


def _head(data: Row) -> list[str]:
    gpu, ceiling, start = data["provenance"]["gpu"], data["ceiling"], data["start"]
    model = data["model"]
    where = f"{model['name']} on {gpu['name']} (driver {gpu['driver']}, {gpu['power_limit_w']} W limit)"
    setting = f"{ceiling['slots']} x {ceiling['chunk_bytes'] >> 10} KiB in flight per SM"
    twice = f"before {_tb(ceiling['before'])}, after {_tb(ceiling['after'])}"
    first = f"first token of a {start['prompt_tokens']}-token prompt {start['first_token_seconds'] * 1e3:.1f} ms"
    return [
        f"{where}, {model['weight_bytes'] / 1e9:.3f} GB of weights, K/V {model['kv_dtype']}",
        f"Read ceiling {_tb(ceiling['bytes_per_second'])} TB/s ({setting}; {twice})",
        f"Load {start['load_seconds']:.2f} s; {first}",
    ]


def _tb(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e12:.3f}"


def _columns(data: Row) -> list[list[str]]:
    methods = list(data["methods"])
    header = ["position", "ms/token", "+-%", "tokens/s", "% ceiling", "J/token", "W", "rerun", "rel. error", *methods]
    return [header, *(_cells(row, methods) for row in data["positions"])]


def _cells(row: Row, methods: Sequence[str]) -> list[str]:
    return [
        str(row["pos"]),
        f"{row['ms']:.4f}",
        f"{100 * row['spread']:.1f}",
        f"{row['tokens_per_second']:.0f}",
        f"{row['ceiling_percent']:.1f}",
        number(row["joules_per_token"], ".3f"),
        number(row["watts"], ".0f"),
        "same bits" if row["same_logits"] else "DIFFERS",
        number(row["relative_error"], ".1e") + ("" if row["argmax_equal"] in (True, None) else " ARGMAX"),
        *(_baseline(row, method) for method in methods),
    ]


def _baseline(row: Row, method: str) -> str:
    found = row["baselines"].get(method)
    return f"{found['ms']:.3f} ({found['ms'] / row['ms']:.2f}x)" if found else "-"


def number(value: float | None, form: str) -> str:
    """A number, or a dash where it was not measured."""
    return "-" if value is None else format(value, form)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as aligned lines; the first is the header."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _notes(data: Row) -> list[str]:
    notes = [f"{name}: {meaning}" for name, meaning in data["methods"].items()]
    if data["check"]["error"]:
        notes.append(f"not checked against a reference: {data['check']['error']}")
    notes += [f"baseline {method}: {error}" for method, error in data["baseline_errors"].items()]
    return notes
