"""The gates, each a function of the same signature: it returns what it saw, or raises what is wrong.

QUICK gates run before a candidate is timed, FULL ones before it may be kept, and all of them in `amk verify`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import AmkError, DeviceError
from amk.model.source import Model
from amk.runtime.machine import Machine
from amk.verify.floor import floor_ms
from amk.verify.logits import F32, fresh_ids, logits_digest, run_at
from amk.verify.models import changed, integer_model
from amk.verify.oracle import Oracle, relative_error
from amk.verify.rig import Rig

OracleFunction = Callable[[Model, Sequence[int], Sequence[int]], npt.NDArray[Any]]

BOUNDS = {"fp16": 1e-3, "bf16": 4e-3, "fp32": 1e-3}
"""Relative error (2-norm) of the logits of a position, against an oracle that rounds K/V as the cache does."""

INTEGER_BOUND = 1e-4
"""The same with integer weights, whose products and sums are exact."""

BOUNDARIES = (
    0,
    1,
    2,
    15,
    16,
    17,
    31,
    32,
    33,
    47,
    48,
    49,
    63,
    64,
    65,
    95,
    96,
    97,
    127,
    128,
    129,
    191,
    192,
    193,
    255,
    256,
    257,
)
"""Positions where blocks of 16 rows, and splits of any size that a knob allows, begin and end."""

CPU_BOUNDARIES = BOUNDARIES[:9]
INTEGER_POSITIONS = (0, 1, 3, 7)
NAN_BYTE, FINITE_BYTE = 0xFF, 0x3C
"""0xFF.. is a NaN in fp16, bf16 and fp32; 0x3C.. a number near one in the first two, near zero in fp32."""


class Level(IntEnum):
    """How much is checked."""

    QUICK = 1
    FULL = 2


class GateError(Exception):
    """What a gate found wrong."""


class NotApplicableError(Exception):
    """Why a gate says nothing here."""


@dataclass(frozen=True)
class GateResult:
    """The outcome of a gate: `ok` is None where it does not apply."""

    name: str
    ok: bool | None
    detail: str
    seconds: float


@dataclass
class Bench:
    """What the gates share: the rig, a loaded machine, token ids from a fresh seed, and the oracle."""

    rig: Rig
    machine: Machine
    ids: list[int]
    positions: tuple[int, ...]
    bandwidth: float
    oracle: OracleFunction
    replay: Callable[[Sequence[int]], str] | None = None
    _logits: F32 | None = field(default=None, repr=False)

    def logits(self) -> F32:
        """[positions, vocab] of the first run on the plain machine, which later runs must repeat bit by bit."""
        if self._logits is None:
            self._logits = run_at(self.machine, self.ids, self.positions)
        return self._logits

    def must_equal(self, got: F32, what: str) -> None:
        """Raise GateError unless these logits have the bits of the first run."""
        different = [p for p, a, b in zip(self.positions, got, self.logits(), strict=True) if not np.array_equal(a, b)]
        if different:
            raise GateError(f"{what}: the logits differ at positions {', '.join(map(str, different[:8]))}")


def make_bench(
    rig: Rig, machine: Machine, seed: int, bandwidth: float, oracle: OracleFunction | None = None,
    replay: Callable[[Sequence[int]], str] | None = None,
) -> Bench:  # fmt: skip
    """A bench with ids of this seed, as long as the positions that the rig has time for."""
    ids, positions = question(rig.kind, seed, machine.max_seq, machine.vocab)
    return Bench(rig, machine, ids, positions, bandwidth, oracle or plain_oracle(rig.program.kv_dtype), replay)


def question(kind: str, seed: int, max_seq: int, vocab: int) -> tuple[list[int], tuple[int, ...]]:
    """(ids, positions) that the gates ask about on a rig of this kind."""
    wanted = BOUNDARIES if kind == "cuda" else CPU_BOUNDARIES
    positions = tuple(p for p in wanted if p < max_seq)
    return fresh_ids(seed, positions[-1] + 1, vocab), positions


def plain_oracle(kv_dtype: str) -> OracleFunction:
    """The oracle, computed anew each time."""
    return lambda model, ids, positions: Oracle(model.graph, model.checkpoint, kv_dtype).logits(ids, positions)


# The gates


def _oracle(bench: Bench) -> str:
    expected = bench.oracle(bench.rig.model, bench.ids, bench.positions)
    bound = BOUNDS[bench.rig.program.kv_dtype]
    return _compare(bench.logits(), expected, bench.positions, bound)


def _compare(got: F32, expected: npt.NDArray[Any], positions: Sequence[int], bound: float) -> str:
    errors = [relative_error(a[None], b[None]) for a, b in zip(got, expected, strict=True)]
    worst = int(np.argmax(errors))
    text = f"relative error {errors[worst]:.1e} at position {positions[worst]}"
    if not errors[worst] <= bound:
        raise GateError(f"{text}; at most {bound:.0e}")
    return f"{text} (bound {bound:.0e}, {len(positions)} positions)"


def _repeats(bench: Bench) -> str:
    for _ in range(2):
        bench.must_equal(run_at(bench.machine, bench.ids, bench.positions), "a repeat")
    whole = tuple(range(bench.positions[-1] + 1))[-1:]
    once = run_at(bench.machine, bench.ids, whole)
    if not np.array_equal(once[0], bench.logits()[-1]):
        raise GateError("one launch for all tokens gives other logits than one for each position")
    return "bit-identical, over again and in one launch"


def _latency_floor(bench: Bench) -> str:
    program, graph = bench.rig.program, bench.rig.model.graph
    pos = max(0, bench.machine.max_seq - 64)
    ms = bench.rig.ms_per_token(bench.machine, pos, min(32, bench.machine.max_seq - pos))
    if ms is None:
        raise NotApplicableError("nothing real is measured on the CPU")
    floor = floor_ms(graph, program.kv_dtype, pos, bench.bandwidth, program.target.l2_bytes)
    if ms < floor:
        raise GateError(f"{ms:.4f} ms per token at {pos} is below the floor of {floor:.4f} (bytes / bandwidth)")
    return f"{ms:.4f} ms per token at {pos}, floor {floor:.4f}"


def _canaries(bench: Bench) -> str:
    """Guards of NaN and of finite bytes, memory that starts as them, K/V rows that nobody wrote."""
    for byte, name in ((NAN_BYTE, "NaN"), (FINITE_BYTE, "finite")):
        machine = bench.rig.machine(fill=byte)
        try:
            if not bench.rig.poison_kv(machine, byte):
                raise NotApplicableError("NumPy checks its bounds")
            before = bench.rig.constants_digest(machine)
            bench.must_equal(run_at(machine, bench.ids, bench.positions), f"memory surrounded by {name} bytes")
            if overwritten := bench.rig.overwritten(machine):
                raise GateError(f"written outside of buffers: {'; '.join(overwritten[:4])}")
            if bench.rig.constants_digest(machine) != before:
                raise GateError("weights, norms, biases or tables were written to")
        finally:
            machine.close()
    return "NaN and finite guards intact, results independent of them, weights and tables unmodified"


def _poison(bench: Bench) -> str:
    """NaN and infinity in a norm weight must reach the logits, or end the launch with an error that says so."""
    graph = bench.rig.model.graph
    first, last = graph.layers[0].norms()[0], graph.layers[-1].norms()[-1]
    places = [(first.name, 0), (last.name, -1), (graph.final_norm.name, 0)]
    end = np.nan if graph.logits_cap else np.inf  # a soft cap makes a finite logit of infinity
    for (name, index), value in zip(places, (np.nan, np.nan, end), strict=True):
        machine = bench.rig.machine(changed(bench.rig.model, {name: _setter(index, value)}))
        try:
            if np.isfinite(run_at(machine, bench.ids[:2], (0, 1))).all():
                raise GateError(f"{value} in {name} leaves all logits finite")
        except DeviceError as error:  # the machine itself reports the NaN; that it hangs is no report
            if "hung" in str(error):
                raise GateError(f"{value} in {name}: {error}") from error
        finally:
            machine.close()
    return "NaN and infinity in norms of the first and last layer and the end reach the logits"


def _setter(index: int, value: float) -> Callable[[F32], None]:
    def change(values: F32) -> None:
        values[index] = value

    return change


def _integers(bench: Bench) -> str:
    model, positions = integer_model(bench.rig.model), INTEGER_POSITIONS
    ids = bench.ids[: positions[-1] + 1]
    machine = bench.rig.machine(model)
    try:
        got = run_at(machine, ids, positions)
    finally:
        machine.close()
    return _compare(got, bench.oracle(model, ids, positions), positions, INTEGER_BOUND)


def _delays(bench: Bench) -> str:
    """Delays in every lane, drawn anew for each of two runs."""
    machine = bench.rig.delayed()
    if machine is None:
        raise NotApplicableError("no kernel with injected delays here")
    try:
        for _ in range(2):
            bench.must_equal(run_at(machine, bench.ids, bench.positions), "delays in the lanes")
    finally:
        machine.close()
    return "delays in every lane change no bit"


def _fresh_process(bench: Bench) -> str:
    if bench.replay is None:
        raise NotApplicableError("another process replays it later")
    if bench.replay(bench.positions) != logits_digest(bench.logits()):
        raise GateError("a fresh process gives other logits")
    return "a fresh process repeats every bit"


@dataclass(frozen=True)
class Gate:
    """A gate: its name for people, from which level on it runs, and what runs."""

    name: str
    level: Level
    run: Callable[[Bench], str]


GATES = (
    Gate("logits against the oracle", Level.QUICK, _oracle),
    Gate("bit-identical repeats", Level.QUICK, _repeats),
    Gate("latency floor", Level.QUICK, _latency_floor),
    Gate("canaries, unmodified weights", Level.FULL, _canaries),
    Gate("NaN and infinity propagate", Level.FULL, _poison),
    Gate("integer weights", Level.FULL, _integers),
    Gate("injected delays", Level.FULL, _delays),
    Gate("fresh-process replay", Level.FULL, _fresh_process),
)


def run_gates(bench: Bench, levels: Sequence[Level]) -> list[GateResult]:
    """Run the gates of these levels in order."""
    return [_run(gate, bench) for gate in GATES if gate.level in levels]


def _run(gate: Gate, bench: Bench) -> GateResult:
    started = time.monotonic()

    def result(ok: bool | None, detail: object) -> GateResult:
        return GateResult(gate.name, ok, str(detail), round(time.monotonic() - started, 3))

    try:
        return result(True, gate.run(bench))
    except NotApplicableError as reason:
        return result(None, reason)
    except (GateError, AmkError) as error:
        return result(False, error)
