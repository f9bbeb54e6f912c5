"""All ops, by name. A new op is one declaration in `schedule_ir/ops` and one CUDA template in `kernels/`."""

from __future__ import annotations

from schedule_ir.op import Access, Args, Cost, How, Lane, Op
from schedule_ir.ops import activation, attention, linear, stream, token

REGISTRY: dict[str, Op] = {
    op.name: op for module in (stream, activation, linear, attention, token) for op in module.OPS
}

__all__ = ["REGISTRY", "Access", "Args", "Cost", "How", "Lane", "Op"]
