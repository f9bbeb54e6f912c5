"""The benchmark as one list of steps; the result is plain JSON data."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from amk.artifact import Artifact
from amk.bench.baselines import METHODS
from amk.bench.ceiling import Ceiling, measure_ceiling
from amk.bench.child import run_child
from amk.bench.fill import fill_cache
from amk.bench.gpu import BenchGpu
from amk.bench.measure import Latency, measure_latency
from amk.bench.nvml import Nvml
from amk.bench.provenance import provenance
from amk.bench.start import loaded
from amk.bench.work import work_of
from amk.errors import UsageError
from amk.progress import SILENT, Progress
from schedule_ir.program import Program

FORMAT = 1
POSITIONS = (0, 1024, 4096, 16384, 32768)
CHECK_STEPS = 4
CHECK_SECONDS = 300.0


@dataclass(frozen=True)
class Request:
    """What to measure. `positions` None: those of POSITIONS that the artifact has room for."""

    positions: Sequence[int] | None = None
    steps: int = 64
    methods: Sequence[str] = ()
    baseline_seconds: float = 240.0
    command: str = ""


@dataclass
class Result:
    """The result as it grows; `data` is what --json writes."""

    data: dict[str, Any] = field(default_factory=dict)

    def row(self, pos: int) -> dict[str, Any] | None:
        """The measured position `pos`."""
        rows: list[dict[str, Any]] = self.data["positions"]
        return next((row for row in rows if row["pos"] == pos), None)


def run_bench(artifact: Artifact, request: Request, progress: Progress = SILENT) -> dict[str, Any]:
    """Measure an artifact on the first GPU. Raises UsageError for positions beyond max_seq, DeviceError."""
    program = artifact.program
    positions = positions_of(program, request)
    result = Result({"format": FORMAT, "model": model_row(artifact, program)})
    with BenchGpu() as gpu, Nvml(gpu.device.index) as nvml:
        result.data["provenance"] = provenance(artifact, gpu.device, nvml.limits(), request.command)
        with progress.step("Measuring the read ceiling"):
            ceiling = measure_ceiling(gpu)
        with loaded(artifact, progress) as (machine, start):
            result.data["start"] = asdict(start)
            fill_cache(gpu, machine)
            with progress.step("Decoding", len(positions)) as step:
                latencies = []
                for pos in positions:
                    latencies.append(measure_latency(machine, nvml, pos, request.steps, 1 % machine.vocab))
                    step.advance()
        again = measure_ceiling(gpu, [(ceiling.best.chunk_bytes, ceiling.best.slots)])
    result.data["ceiling"] = ceiling_row(ceiling, again)
    speed = result.data["ceiling"]["bytes_per_second"]
    result.data["positions"] = [position_row(program, latency, speed) for latency in latencies]
    with progress.step("Checking against an fp32 reference"):
        add_check(result, artifact.path, positions)
    with progress.step("Measuring what else there is"):
        add_baselines(result, program, request, positions)
    return result.data


def positions_of(program: Program, request: Request) -> list[int]:
    """The positions to measure, in order. Raises UsageError where one does not fit the artifact."""
    last = program.config["max_seq"] - request.steps
    if request.positions is None:
        positions = [pos for pos in POSITIONS if pos <= last]
    else:
        positions = sorted(set(request.positions))
    if not positions or positions[-1] > last or positions[0] < 0:
        raise UsageError(
            f"positions {positions or list(POSITIONS)} with {request.steps} steps each: the artifact has room for "
            f"{last + request.steps} tokens; choose positions from 0 to {last}, or build with a larger --max-seq"
        )
    return positions


def model_row(artifact: Artifact, program: Program) -> dict[str, Any]:
    """Name and sizes of the model."""
    keys = ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "tied_head")
    sizes = {key: program.config[key] for key in keys}
    name = Path(str(artifact.manifest["model"]["path"])).name
    return {"name": name, **sizes, "kv_dtype": program.kv_dtype, "weight_bytes": work_of(program, 0).weights}


def ceiling_row(ceiling: Ceiling, again: Ceiling) -> dict[str, Any]:
    """The ceiling, measured before decoding and once more after it; the higher one counts."""
    best = max(ceiling.best, again.best, key=lambda setting: setting.bytes_per_second)
    return {
        **asdict(best),
        "before": ceiling.best.bytes_per_second,
        "after": again.best.bytes_per_second,
        "stream_bytes": ceiling.stream_bytes,
        "settings": [asdict(setting) for setting in ceiling.settings],
    }


def position_row(program: Program, latency: Latency, ceiling: float) -> dict[str, Any]:
    """A measured position; `ceiling` in bytes per second."""
    work = work_of(program, latency.pos, latency.steps)
    energy = latency.energy
    return {
        "pos": latency.pos,
        "steps": latency.steps,
        "ms": latency.ms,
        "ms_fastest": min(latency.launch_ms),
        "ms_slowest": max(latency.launch_ms),
        "spread": latency.spread,
        "launches": len(latency.launch_ms),
        "tokens_per_second": 1e3 / latency.ms,
        "weight_bytes": work.weights,
        "kv_bytes": work.kv,
        "floor_ms": work.floor_ms(ceiling),
        "ceiling_percent": work.percent_of(ceiling, latency.ms),
        "joules_per_token": energy.joules_per_token if energy else None,
        "watts": energy.watts if energy else None,
        "state": latency.state,
        "same_tokens": latency.same_tokens,
        "same_logits": latency.same_logits,
        "relative_error": None,
        "argmax_equal": None,
        "baselines": {},
    }


def has_torch() -> bool:
    """Whether torch is installed (it is not imported here)."""
    return importlib.util.find_spec("torch") is not None


def add_check(result: Result, artifact: Path, positions: Sequence[int]) -> None:
    """Logits against the fp32 reference, where torch is installed; `check` says why not where they are missing."""
    if not has_torch():
        result.data["check"] = {"error": "torch is not installed"}
        return
    request = {"artifact": str(artifact.resolve()), "positions": list(positions), "steps": CHECK_STEPS}
    rows, problem = run_child("amk.bench.check", request, CHECK_SECONDS)
    result.data["check"] = {"error": problem, "steps": CHECK_STEPS}
    for row in rows:
        target = result.row(row.get("pos", -1))
        if target is not None:
            target |= {"relative_error": row["relative_error"], "argmax_equal": row["argmax_equal"]}


def add_baselines(result: Result, program: Program, request: Request, positions: Sequence[int]) -> None:
    """The methods that were asked for, each at the middle of the tokens that were measured."""
    result.data["methods"] = {name: METHODS[name] for name in request.methods}
    errors: dict[str, str] = {}
    result.data["baseline_errors"] = errors
    if not request.methods:
        return
    if not has_torch():
        errors["all"] = "torch is not installed"
        return
    middle = request.steps // 2
    asked = {"shape": shape_of(program), "positions": [p + middle for p in positions], "methods": list(request.methods)}
    rows, problem = run_child("amk.bench.baselines", asked, request.baseline_seconds)
    if problem:
        errors["all"] = problem
    for row in rows:
        if "error" in row:
            errors[row["method"]] = row["error"]
        elif (target := result.row(row["pos"] - middle)) is not None:
            target["baselines"][row["method"]] = {"ms": row["ms"], "attention": row["attention"]}


def shape_of(program: Program) -> dict[str, Any]:
    """The sizes that a baseline needs (`torch_decode.Shape`)."""
    keys = ("hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "vocab")
    return {**{key: program.config[key] for key in keys}, "tied": bool(program.config["tied_head"])}
