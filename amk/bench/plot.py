"""A picture of a result: milliseconds per token over the position, against the floor. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amk.errors import UsageError

Row = dict[str, Any]


def plot(data: Row, path: Path) -> None:
    """Draw a result to `path` (.png, .svg, ...). Raises UsageError if matplotlib is missing or cannot write that."""
    figure_class, canvas_class = load_matplotlib()
    figure = figure_class(figsize=(7, 4.5), layout="constrained")
    canvas_class(figure)
    axes = figure.add_subplot()
    rows = data["positions"]
    positions = [row["pos"] for row in rows]
    axes.plot(positions, [row["ms"] for row in rows], "o-", label="amk")
    axes.plot(positions, [row["floor_ms"] for row in rows], "k--", label="floor: weights + K/V at the read ceiling")
    for method, meaning in data["methods"].items():
        measured = [(row["pos"], row["baselines"][method]["ms"]) for row in rows if method in row["baselines"]]
        if measured:
            axes.plot(*zip(*measured, strict=True), "s:", label=meaning)
    axes.set_xscale("symlog", base=2, linthresh=512)
    axes.set_xticks(positions, [f"{pos:,}" for pos in positions])
    axes.set(xlabel="position", ylabel="ms per token", ylim=(0, None), title=_title(data))
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:  # a suffix that matplotlib does not write
        raise UsageError(f"--plot {path}: {error}; use .png or .svg") from error


def load_matplotlib() -> tuple[Any, Any]:
    """The figure and canvas classes. Raises UsageError where matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("--plot needs matplotlib; pip install 'amk[bench]'") from error
    return Figure, FigureCanvasAgg


def _title(data: Row) -> str:
    return f"{data['model']['name']}, batch 1, {data['provenance']['gpu']['name']}"
