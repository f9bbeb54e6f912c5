"""The constants of the cost model, in calibration.json: fitted to measurements by benchmarks/fit_cost.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

FILE = "calibration.json"


@dataclass(frozen=True)
class Calibration:
    """What the schedule cannot know. Times in microseconds.

    `handoff_us`: from the end of the work behind a result until a reader on another SM sees its packets.
    `packet_ns`: of a reader, for each packet that it polls.
    `stream_packet_bytes`: bytes of the stream that a polled packet displaces in the SM's share of the L2.
    `sm_gb_s`: rate at which an SM's compute warps drain the ring when it is full.
    `unit_us`: of a weight unit, beyond its bytes.
    `block_us`: for a warp to attend to one block of 16 positions.
    `attend_us`, `combine_us`: of the task, beyond its waits and blocks.
    `token_us`: per token, for what no hand-off shows (embedding row, K/V release, loop).
    """

    handoff_us: float
    packet_ns: float
    stream_packet_bytes: float
    sm_gb_s: float
    unit_us: float
    block_us: float
    attend_us: float
    combine_us: float
    token_us: float

    def task_us(self, op: str) -> float:
        """Fixed time of the task that a segment starts with."""
        return {"attend": self.attend_us, "combine": self.combine_us}.get(op, 0.0)


def load() -> Calibration:
    """The calibration that comes with amk."""
    return of_constants(_file()["constants"])


def of_constants(constants: Mapping[str, float]) -> Calibration:
    """A calibration of named constants. Raises KeyError for one that is missing."""
    return Calibration(**{field.name: float(constants[field.name]) for field in fields(Calibration)})


def fitted_on() -> str:
    """The GPU whose measurements the constants were fitted to; on others a prediction is a rough one."""
    return str(_file()["gpu"])


def measured_points() -> list[dict[str, Any]]:
    """The measurements behind the constants: {"shape", "pos", "steps", "ms"}."""
    return list(_file()["measured"])


def measured_knobs(point: Mapping[str, Any]) -> dict[str, int]:
    """The knobs of the schedule of a measurement; one from before down could be cut had it in one piece."""
    return {"down_pieces": 1, **point.get("knobs", {})}


@cache
def _file() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("amk.cost").joinpath(FILE).read_text(encoding="utf-8"))
    return data
