"""Milliseconds per token of a schedule, with the reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from amk.cost.calibration import Calibration, fitted_on, load
from amk.cost.plan import Plan, plan_of
from amk.cost.simulate import Played, play
from schedule_ir.program import Program

NO_LIMIT = 1e30
"""Bytes per second at which the stream is never waited for."""


@dataclass(frozen=True)
class Prediction:
    """The token at `pos`. Bytes are those that pass through the rings, padding included.

    `stream_ms` is the bytes over the bandwidth, `chain_ms` what hand-offs and arithmetic take where weights are always
    there, `imbalance` the bytes of the busiest SM over the mean. `waits_us`: by mailbox and the task that waits for it,
    the time per token that an SM spends there (mean over SMs), the stream at work meanwhile.
    """

    pos: int
    ms_per_token: float
    weight_bytes: int
    kv_bytes: int
    bandwidth: float
    ring_bytes: int
    stream_ms: float
    chain_ms: float
    imbalance: float
    waits_us: Mapping[str, float]

    @property
    def exposed_ms(self) -> float:
        """What is left of the chain (and the imbalance) beside the stream."""
        return max(0.0, self.ms_per_token - self.stream_ms)

    @property
    def limit(self) -> str:
        """What to work on: "stream" where memory is read most of the time, else "chain"."""
        return "stream" if self.stream_ms >= self.ms_per_token / 2 else "chain"

    def text(self) -> str:
        """The prediction and its reasons, for a person."""
        waits = ", ".join(f"{op} {us:.0f}" for op, us in sorted(self.waits_us.items(), key=lambda x: -x[1]) if us >= 1)
        stream = f"{self.weight_bytes / 1e9:.3f} GB of weights and {self.kv_bytes / 1e9:.3f} GB of K/V"
        hidden = f"{self.exposed_ms:.3f} ms are not hidden by a ring of {self.ring_bytes / 1024:.0f} KiB"
        return "\n".join(
            [
                f"{self.ms_per_token:.3f} ms/token at position {self.pos}, predicted with constants of {fitted_on()}:",
                f"  stream    {self.stream_ms:.3f} ms: {stream} at {self.bandwidth / 1e12:.2f} TB/s",
                f"  chain     {self.chain_ms:.3f} ms of hand-offs and arithmetic by itself; {hidden}",
                f"  imbalance {100 * (self.imbalance - 1):.1f}%: what the busiest SM streams beyond the mean",
                f"  waits     us/token of an SM: {waits or 'none'}",
            ]
        )


def predict(program: Program, pos: int, calibration: Calibration | None = None) -> Prediction:
    """Predict the token at `pos`, logits included. Raises StuckPlanError for a schedule that cannot run."""
    return predict_plan(plan_of(program, pos), pos, program.target.bandwidth, calibration or load())


def predict_plan(plan: Plan, pos: int, bandwidth: float, calibration: Calibration) -> Prediction:
    """Predict a plan; `bandwidth` in bytes per second."""
    by_sm = plan.sm_bytes()
    played = play(plan, calibration, bandwidth)
    return Prediction(
        pos=pos,
        ms_per_token=played.token_us / 1e3,
        weight_bytes=sum(segment.tape_bytes for segment in plan.segments),
        kv_bytes=sum(segment.kv_bytes for segment in plan.segments),
        bandwidth=bandwidth,
        ring_bytes=plan.ring_bytes,
        stream_ms=float(by_sm.sum()) / bandwidth * 1e3,
        chain_ms=play(plan, calibration, NO_LIMIT).token_us / 1e3,
        imbalance=float(by_sm.max() / by_sm.mean()),
        waits_us=waits_of(plan, played),
    )


def waits_of(plan: Plan, played: Played) -> dict[str, float]:
    """Microseconds that an SM waits for each mailbox in each kind of task, mean over SMs."""
    waits: dict[str, float] = defaultdict(float)
    for segment, waited in zip(plan.segments, played.waited, strict=True):
        if segment.waits:
            waits[f"{segment.source} -> {segment.op}"] += waited / plan.sms
    return dict(waits)
