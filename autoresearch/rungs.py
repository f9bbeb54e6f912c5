"""The worker's side of the ladder: what each request does with the candidate and the incumbent of this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np

from amk.errors import DeviceError
from amk.model.source import open_model
from amk.runtime.machine import Machine
from amk.verify import GateResult, Level, run_gates
from amk.verify.artifact import data_sheet_bandwidth
from amk.verify.floor import floor_ms
from amk.verify.gates import BOUNDS, Bench, make_bench
from amk.verify.logits import fresh_ids, logits_digest, run_at
from amk.verify.oracle import relative_error
from autoresearch.abba import CANDIDATE, INCUMBENT
from autoresearch.cache import CompileCache, cached_oracle
from autoresearch.engine import Engine, GpuEngine, ModelEngine
from autoresearch.link import RefusedError
from autoresearch.side import Compile, Side
from autoresearch.spacer import Spacer
from autoresearch.spec import content_hash
from autoresearch.subject import subject_from_json
from autoresearch.workload import Workload

SMOKE_TOKENS = 4
WARM_UP_SECONDS = 0.5
"""Of the first load: first launches are slower, and so is a GPU that was idle, until its clocks are up."""

REWARM_SECONDS = 0.1
"""Of later ones: the clocks are up, caches and address translation start cold."""

DEEP_SEED = 20_240_601


def deep_question(objective: Workload, vocab: int) -> tuple[list[int], tuple[int, ...]]:
    """(ids, positions) of a sequence as long as the workload's. Its oracle takes long: asked once, kept on disk."""
    end = max(point.pos for point in objective.points)
    return fresh_ids(DEEP_SEED, end + 1, vocab), tuple(sorted({end // 2, end}))


class Rungs:
    """The methods of a worker. `begin` comes first and says which subject, candidate and incumbent."""

    def __init__(self, engine: Engine | None = None, compiled: Compile | None = None) -> None:
        self._engine_override, self._compile_override = engine, compiled
        self._spacers: list[Spacer] = []
        self._clocks_up = False

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Execute a request."""
        handler = cast("Callable[..., dict[str, Any]]", getattr(self, f"do_{method}"))
        return handler(**params)

    # Requests

    def do_begin(
        self,
        subject: dict[str, Any],
        candidate: dict[str, Any],
        incumbent: dict[str, Any] | None,
        cache: str,
        seed: int,
    ) -> dict[str, Any]:
        """Say what this process is about."""
        self.subject, self.cache, self.seed = subject_from_json(subject), Path(cache), seed
        self.model = open_model(self.subject.model, self.subject.random_seed)
        if self.model.checkpoint.digest != self.subject.digest:
            raise RefusedError("infrastructure", f"{self.subject.model}: changed since the search began; start another")
        self.compiled = CompileCache(self.cache / "cubins")
        self.engine = self._engine_override or self._engine(self.subject.mode)
        self.objective = self.subject.objective
        self.candidate = self._side(candidate)
        self.incumbent = self._side(incumbent or candidate)
        return {}

    def _engine(self, mode: str) -> Engine:
        return GpuEngine(self.compiled.source) if mode == "measured" else ModelEngine()

    def _side(self, spec: dict[str, Any]) -> Side:
        return Side(spec, self.subject, self.model, self._compile_override or self.compiled)

    def do_against(self, incumbent: dict[str, Any]) -> dict[str, Any]:
        """Compare with this incumbent from now on; lowers and compiles it, and takes no GPU."""
        if incumbent != self.incumbent.spec:
            self._close_sides()
            self.incumbent = self._side(incumbent)
        _ = self.incumbent.build
        return {}

    def do_prepare(self, delays: bool) -> dict[str, Any]:
        """Everything of both sides that needs no GPU; with `delays` also the candidate's kernel for that gate."""
        for side in (self.candidate, self.incumbent):
            _ = side.build
        if delays:
            self.engine.prepare(self.candidate.build)
        return {}

    def do_lower(self) -> dict[str, Any]:
        """The candidate's identity."""
        program = self.candidate.program
        return {"content": content_hash(self.candidate.tables), "tasks": len(self.candidate.tables.records),
                "config": dict(program.config)}  # fmt: skip

    def do_validate(self, resources: bool = False) -> dict[str, Any]:
        """The validator's verdict; with `resources`, of the compiled kernel too."""
        import validator

        compiled = self._resources() if resources else None
        target = self.subject.as_target()
        report = validator.validate(self.candidate.tables, self.model.graph, target, kernel=compiled)
        if not report.ok:
            first = report.violations[0] if report.violations else None
            reason = f"rule {first.rule}: {first.message}" if first else "an obligation was refuted"
            raise RefusedError("validator", reason, report.text()[:20000])
        return {"obligations": len(report.obligations)}

    def _resources(self) -> dict[str, int]:
        """Of the compiled kernel, as the validator takes them."""
        return {**self.candidate.kernel.resources, "shared_bytes": self.candidate.program.config["shared_bytes"]}

    def do_compile(self) -> dict[str, Any]:
        """Compile, or take the cubin of an equal source from the cache."""
        return {"resources": self.candidate.kernel.resources, "cubin_sha256": self.candidate.kernel.sha256}

    def do_smoke(self) -> dict[str, Any]:
        """A few tokens, with logits that are finite."""
        self._load(self.candidate)
        machine = self._machine(self.candidate)
        ids = fresh_ids(self.seed, SMOKE_TOKENS, machine.vocab)
        logits = run_at(machine, ids, range(min(SMOKE_TOKENS, machine.max_seq)))
        if not np.isfinite(logits).all():
            raise RefusedError("smoke", "logits are not finite")
        return {"digest": logits_digest(logits)}

    def do_gates(self, full: bool, digest: str | None = None) -> dict[str, Any]:
        """The correctness gates; with `digest` also that this process repeats the bits of the one before."""
        self._load(self.candidate)
        rig = self.engine.rig(self.candidate.build, self.model)
        oracle = cached_oracle(self.cache / "oracle", self.subject.kv_dtype)
        bench = make_bench(rig, self._machine(self.candidate), self.seed, self.bandwidth, oracle)
        if digest is not None:
            bench.replay = lambda _: digest
        results = run_gates(bench, [Level.FULL] if full else [Level.QUICK])
        if full and rig.kind == "cuda":
            results.append(self._deep(bench))
        for result in results:
            if result.ok is False:
                raise RefusedError("gates", f"{result.name}: {result.detail}")
        return {"digest": logits_digest(bench.logits()), "gates": [asdict(result) for result in results]}

    def _deep(self, bench: Bench) -> GateResult:
        """The logits where the workload is, against the oracle of the whole sequence."""
        started = time.monotonic()
        ids, positions = deep_question(self.objective, bench.machine.vocab)
        expected = bench.oracle(self.model, ids, positions)
        error = relative_error(run_at(bench.machine, ids, positions), expected)
        bound = BOUNDS[self.subject.kv_dtype]
        detail = f"{error:.1e} at positions up to {positions[-1]}, at most {bound:.0e}"
        seconds = round(time.monotonic() - started, 3)
        return GateResult("logits at the workload's positions", error <= bound, detail, seconds)

    @property
    def _sides(self) -> dict[str, Side]:
        return {INCUMBENT: self.incumbent, CANDIDATE: self.candidate}

    def do_load(self, order: str, shares: list[float]) -> dict[str, Any]:
        """Load both sides anew, in this order, a spacer of these shares before each, and warm up.

        Sides that differ in nothing but their kernels share what is loaded: then addresses are the same for both.
        """
        if not self.engine.needs_machine:
            return {}
        sides = [self._sides[who] for who in order]
        try:
            self._place(sides, shares)
        except DeviceError:
            self._place(sides, [0.0] * len(sides))  # the memory may be full to the last spacer
        self._warm_up(sides, REWARM_SECONDS if self._clocks_up else WARM_UP_SECONDS)
        self._clocks_up = True
        return {}

    def _place(self, sides: list[Side], shares: list[float]) -> None:
        self._close_sides()
        for spacer in self._spacers:
            spacer.close()
        self._spacers.clear()
        for side, share in zip(sides, shares, strict=True):
            self._spacers.append(self.engine.spacer(share))
            if side is not sides[0] and self.engine.exchangeable(sides[0].build, side.build):
                side.machine = sides[0].machine
                continue
            self._load(side)
            self.engine.settle(self._machine(side))

    def _close_sides(self) -> None:
        """Both: they may share a machine."""
        self.candidate.close()
        self.incumbent.close()

    def do_block(self, order: str) -> dict[str, Any]:
        """One pair: every point of the workload, in this order of the sides, as they were loaded last."""
        sides = self._sides
        if self.engine.needs_machine:
            self._row(sides[order[0]])  # not counted: the GPU was idle while the pair before was written down
        before, spoiled_before = self.engine.clocks()
        samples = [self._row(sides[who]) for who in order]
        after, spoiled_after = self.engine.clocks()
        return {
            "samples": samples,
            "valid": not (spoiled_before or spoiled_after),
            "clocks": {"before": before, "after": after},
        }

    def _warm_up(self, sides: list[Side], seconds: float) -> None:
        """Run the sides in turns, each at least once."""
        until = time.monotonic() + seconds
        while True:
            for side in sides:
                self._row(side)
            if time.monotonic() >= until:
                return

    def _row(self, side: Side) -> list[float]:
        machine = self._machine(side) if self.engine.needs_machine else None
        return [self.engine.time(side.build, machine, point) for point in self.objective.points]

    def do_floors(self) -> dict[str, Any]:
        """Least ms per token at each point of the workload."""
        kv, l2 = self.subject.kv_dtype, self.subject.as_target().l2_bytes
        points = self.objective.points
        return {"floors": [floor_ms(self.model.graph, kv, p.pos, self.bandwidth, l2) for p in points]}

    def do_energy(self) -> dict[str, Any]:
        """Joules per token of both sides at the last point of the workload."""
        point = self.objective.points[-1]
        sides = {"candidate": self.candidate, "incumbent": self.incumbent}
        if self.incumbent.machine is None:  # all pairs may be from before a restart
            self.do_load(INCUMBENT + CANDIDATE, [0.0, 0.0])
        machines = self._machine if self.engine.needs_machine else lambda _: None
        return {name: self.engine.joules_per_token(machines(side), point) for name, side in sides.items()}

    def do_timeline(self, pos: int) -> dict[str, Any]:
        """Where the candidate's time goes."""
        try:
            return self.engine.timeline(self.candidate.build, self.model, pos)
        except ValueError as error:
            return {"available": False, "reason": str(error)}

    def do_probe(self, mode: str) -> dict[str, Any]:
        """Whether the device answers."""
        engine = self._engine_override or (GpuEngine() if mode == "measured" else ModelEngine())
        return engine.probe()

    def do_machine(self) -> dict[str, Any]:
        """What is measured on: for the evidence of a result."""
        return {**self.engine.probe(), "nvrtc": self.candidate.kernel.nvrtc}

    # Shared

    @property
    def bandwidth(self) -> float:
        """What no read exceeds."""
        return data_sheet_bandwidth(self.subject.as_target())

    def _load(self, side: Side) -> None:
        if side.machine is None:
            side.machine = self.engine.rig(side.build, self.model).machine()

    def _machine(self, side: Side) -> Machine:
        """The machine that a side was loaded into, with its kernel."""
        assert side.machine is not None
        self.engine.select(side.build, side.machine)
        return side.machine
