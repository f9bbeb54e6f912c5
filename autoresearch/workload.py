"""What "faster" is about: weighted positions of the token that is decoded, not one point."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amk.errors import UsageError

EXAMPLE = '{"points": [{"pos": 0, "weight": 1}, {"prompt": 512, "output": 128, "weight": 2}]}'


@dataclass(frozen=True)
class Point:
    """`steps` tokens decoded from position `pos` on; `weight` is its share of the objective."""

    pos: int
    weight: float
    steps: int = 32


@dataclass(frozen=True)
class Workload:
    """The objective: sum over points of weight * ms per token."""

    points: tuple[Point, ...]

    def objective(self, ms_per_token: Sequence[float]) -> float:
        """The weighted latency of one measurement, one number per point."""
        return sum(point.weight * ms for point, ms in zip(self.points, ms_per_token, strict=True))

    def to_json(self) -> list[dict[str, Any]]:
        """As JSON data."""
        return [asdict(point) for point in self.points]


def default_workload(max_seq: int) -> Workload:
    """An early position and the last ones, with equal weight."""
    return from_points([(0, 1.0), (max(0, max_seq - 64), 1.0)], max_seq)


def at_positions(positions: Sequence[int], max_seq: int) -> Workload:
    """Equal weight at each of these positions."""
    return from_points([(pos, 1.0) for pos in positions], max_seq)


def from_points(weighted: Sequence[tuple[int, float]], max_seq: int) -> Workload:
    """Points at (position, weight), each decoding as many tokens as fit, up to 32; weights sum to 1."""
    total = sum(weight for _, weight in weighted)
    points: dict[int, Point] = {}
    for pos, weight in weighted:
        steps = min(Point(0, 0).steps, max_seq - pos)
        if steps < 1 or pos < 0 or weight <= 0:
            raise UsageError(f"workload: position {pos}, weight {weight}: positions are 0..{max_seq - 1}, weights > 0")
        earlier = points[pos].weight if pos in points else 0.0
        points[pos] = Point(pos, earlier + weight / total, steps)
    if not points:
        raise UsageError(f"workload: it has no points; write for example {EXAMPLE}")
    return Workload(tuple(points.values()))


def read_workload(path: Path, max_seq: int) -> Workload:
    """A workload file: points by position, or by prompt and output length (then at three positions of the output)."""
    try:
        points = json.loads(path.read_text(encoding="utf-8"))["points"]
        weighted = [pair for point in points for pair in _weighted(point)]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a workload file") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: not a workload ({error!r}); write for example {EXAMPLE}") from error
    return from_points(weighted, max_seq)


def _weighted(point: dict[str, Any]) -> list[tuple[int, float]]:
    weight = float(point.get("weight", 1))
    if "pos" in point:
        return [(int(point["pos"]), weight)]
    prompt, output = int(point["prompt"]), int(point["output"])
    # Latency is near linear in the position: the quarters of the output stand for all of it.
    return [(prompt + output * quarter // 4, weight / 3) for quarter in (1, 2, 3)]


def from_json(points: list[dict[str, Any]]) -> Workload:
    """The workload of `to_json`."""
    return Workload(tuple(Point(int(p["pos"]), float(p["weight"]), int(p["steps"])) for p in points))
