#!/usr/bin/env python3
"""Fits the constants of amk.cost to measurements and writes amk/cost/calibration.json.

    benchmarks/fit_cost.py benchmarks/h200/*.json     from results of amk bench (their schedules are made again)
    benchmarks/fit_cost.py                            from the measurements in calibration.json, for the kernel as it is

Least squares of log(predicted / measured) over the logarithms of the constants, each held near where it was by a weak
spring, so that a constant that the measurements say nothing about stays.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
from run_h200 import COMMON  # noqa: E402

from amk.cost.calibration import Calibration, load, measured_knobs, measured_points, of_constants  # noqa: E402
from amk.cost.plan import Plan, plan_of  # noqa: E402
from amk.cost.simulate import play  # noqa: E402
from amk.gpus import lookup  # noqa: E402
from amk.lower import Knobs, lower  # noqa: E402
from amk.model.walker import walk  # noqa: E402
from schedule_ir import Program  # noqa: E402

TARGET = HERE.parent / "amk" / "cost" / "calibration.json"
SPRING = 0.05
STEP = 0.1
ROUNDS = 8
MAX_SEQ = 32768 + 64

Point = dict[str, Any]


def main() -> None:
    """Fit, report the errors, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", type=Path, help="JSON files of amk bench")
    parser.add_argument("--gpu", default="h200", help="the GPU of the table that they were measured on")
    parser.add_argument("--dry-run", action="store_true", help="only report")
    options = parser.parse_args()
    points = [point for file in options.results for point in points_of(file)] or measured_points()
    plans = make_plans(points, options.gpu)
    bandwidth = lookup(options.gpu).as_target().bandwidth
    fitted = fit(plans, points, bandwidth)
    show(plans, points, bandwidth, fitted)
    if not options.dry_run:
        constants = {name: float(f"{value:.4g}") for name, value in asdict(fitted).items()}
        data = {"gpu": lookup(options.gpu).device_names[0], "constants": constants, "measured": points}
        TARGET.write_text(json.dumps(data, indent=1) + "\n")


def points_of(file: Path) -> list[Point]:
    """The measurements of a result, with the knobs that the schedule was made with."""
    data = json.loads(file.read_text())
    knobs = data["provenance"]["artifact"]["knobs"]
    rows = data["positions"]
    return [
        {"shape": file.stem, "pos": row["pos"], "steps": row["steps"], "ms": round(row["ms"], 4), "knobs": knobs}
        for row in rows
    ]


def shapes() -> dict[str, dict[str, Any]]:
    """Configs by name."""
    configs: dict[str, dict[str, Any]] = json.loads((HERE / "shapes.json").read_text())
    return configs


def make_plans(points: list[Point], gpu: str) -> list[Plan]:
    """The plan of every point: the token in the middle of those that were measured."""
    programs: dict[str, Program] = {}
    plans = []
    for point in points:
        key = json.dumps([point["shape"], point.get("knobs")])
        if key not in programs:
            graph = walk(COMMON | shapes()[point["shape"]], None)
            knobs = Knobs(**measured_knobs(point))
            programs[key] = lower(graph, lookup(gpu).as_target(), MAX_SEQ, knobs=knobs)
        plans.append(plan_of(programs[key], point["pos"] + point["steps"] // 2))
    return plans


def fit(plans: list[Plan], points: list[Point], bandwidth: float) -> Calibration:
    """Gauss-Newton from the present constants."""
    names = list(asdict(load()))
    start = np.log([getattr(load(), name) for name in names])
    x = start.copy()

    def errors(logs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        constants = of_constants(dict(zip(names, np.exp(logs), strict=True)))
        return residuals(plans, points, bandwidth, constants)

    for _ in range(ROUNDS):
        base = errors(x)
        slopes = np.array([(errors(x + STEP * unit) - base) / STEP for unit in np.eye(len(x))]).T
        matrix = np.vstack([slopes, SPRING * np.eye(len(x))])
        target = np.concatenate([-base, SPRING * (start - x)])
        x = x + np.clip(np.linalg.lstsq(matrix, target, rcond=None)[0], -0.5, 0.5)
    return of_constants(dict(zip(names, np.exp(x), strict=True)))


def residuals(
    plans: list[Plan], points: list[Point], bandwidth: float, constants: Calibration
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """log(predicted / measured) of every point."""
    predicted = [play(plan, constants, bandwidth).token_us / 1e3 for plan in plans]
    return np.log(np.array(predicted) / [point["ms"] for point in points])


def show(plans: list[Plan], points: list[Point], bandwidth: float, constants: Calibration) -> None:
    """Constants before and after, error of every point."""
    for name, value in asdict(constants).items():
        print(f"{name:20} {getattr(load(), name):8.4g} -> {value:8.4g}")
    for point, error in zip(points, residuals(plans, points, bandwidth, constants), strict=True):
        print(
            f"{point['shape']:14} {point['pos']:6} measured {point['ms']:.3f} ms, off by {100 * np.expm1(error):+.1f}%"
        )


if __name__ == "__main__":
    main()
