"""Rule 11: the whole grid is resident on the target, so that a poll never waits for a block that has not started."""

from __future__ import annotations

from collections.abc import Mapping

from schedule_ir.layout import TILE_ROWS, ceil_to, new_row_bytes, partial_bytes
from schedule_ir.target import Target
from validator.columns import Columns
from validator.report import Obligation, Violation

MAX_THREADS = 1024
MAX_REGISTERS_PER_THREAD = 255
WARP = 32
EXTRA_WARPS = 2

PENDING = "rule 11: registers and shared memory of the compiled kernel"


def check(columns: Columns, target: Target | None, resources: Mapping[str, int] | None) -> list[Violation]:
    """Theorem: one block per SM of the target, its shared memory regions apart and within the opt-in maximum, at most
    1,024 threads, buffers within device memory; and, of the compiled kernel, registers that let a block be resident.
    """
    program = columns.program
    messages = [] if target is None else _same_target(program.target, target)
    messages += _grid(columns, target or program.target)
    messages += _shared(columns, target or program.target)
    if resources is not None:
        messages += compiled(columns.config, target or program.target, resources)
    return [Violation(11, message) for message in messages]


def _same_target(mine: Target, target: Target) -> list[str]:
    matter = ("arch", "path", "sms", "smem_bytes", "registers")
    differ = [name for name in matter if getattr(mine, name) != getattr(target, name)]
    return [
        f"made for {n} = {getattr(mine, n)}, the target has {getattr(target, n)}; build it for this target"
        for n in differ
    ]


def _grid(columns: Columns, target: Target) -> list[str]:
    config, broken = columns.config, []
    if columns.sms > target.sms:
        broken.append(
            f"grid of {columns.sms} blocks on {target.sms} SMs: the last could never start, and all wait for them"
        )
    threads = WARP * (config["compute_warps"] + EXTRA_WARPS)
    if threads > MAX_THREADS:
        broken.append(f"{threads} threads per block, at most {MAX_THREADS}; use fewer compute warps")
    need = sum(b.size * b.element_bytes for b in columns.program.buffers if b.space != "shared")
    if need > target.memory_bytes:
        broken.append(
            f"{need} bytes of buffers do not fit the {target.memory_bytes} of {target.name}; use a smaller max_seq"
        )
    return broken


def _shared(columns: Columns, target: Target) -> list[str]:
    config = columns.config
    regions = [b for b in columns.program.buffers if b.space == "shared"]
    broken = [
        f"shared region {b.name!r} has elements of {b.element_bytes} bytes, not 1"
        for b in regions
        if b.element_bytes != 1
    ]
    end = max((b.end for b in regions), default=0)
    if end != config["shared_bytes"]:
        broken.append(f"shared regions end at byte {end}, config shared_bytes = {config['shared_bytes']}")
    if config["shared_bytes"] > target.smem_bytes:
        broken.append(
            f"{config['shared_bytes']} bytes of shared memory per block, {target.name} allows {target.smem_bytes}"
        )
    sizes = {b.name: b.size for b in regions}
    for name, need in _needs(columns).items():
        if sizes.get(name, 0) < need:
            broken.append(f"{name} has {sizes.get(name, 0)} bytes, {need} are used")
    return broken


def _needs(columns: Columns) -> dict[str, int]:
    """Bytes that the ops use of the regions that are not rings."""
    config, warps = columns.config, columns.config["compute_warps"]
    steps = -(-config["hidden"] // 16)
    rounds = ceil_to(ceil_to(steps, warps) // warps, 4) // 4
    queries = max((v.constants["queries"] for v in columns.program.variants if v.op == "attend"), default=1)
    partials = partial_bytes(warps, queries, config["head_dim"])
    return {
        "shared.activation": ceil_to(config["activation_ksteps"], warps) * 64,
        "shared.residual": rounds * warps * WARP * 8,
        "shared.scratch": config["head_dim_padded"] * 32 + new_row_bytes(config) + partials,
        "shared.accumulators": config["accumulators"] * warps * TILE_ROWS * 4,
    }


def compiled(config: Mapping[str, int], target: Target, resources: Mapping[str, int]) -> list[str]:
    """Theorem: with these registers per thread and bytes of shared memory, one block fits an SM of the target."""
    registers, shared = resources.get("registers"), resources.get("shared_bytes")
    if not isinstance(registers, int) or not isinstance(shared, int):
        return [f"resources {dict(resources)} lack integers 'registers' (per thread) and 'shared_bytes'"]
    warps = ceil_to(config["compute_warps"] + EXTRA_WARPS, 4)
    need = warps * ceil_to(max(registers, 1) * WARP, 256)
    broken = []
    if not 0 < registers <= MAX_REGISTERS_PER_THREAD or need > target.registers:
        broken.append(
            f"{registers} registers per thread: a block needs {need}, an SM of {target.name} has {target.registers}"
        )
    if not config["shared_bytes"] <= shared <= target.smem_bytes:
        limits = f"between the schedule's {config['shared_bytes']} and {target.name}'s {target.smem_bytes}"
        broken.append(f"the kernel uses {shared} bytes of shared memory, not {limits}")
    return broken


def pending(resources: Mapping[str, int] | None) -> Obligation:
    """What only the compiler's output can settle."""
    return Obligation(PENDING, "pending" if resources is None else "proved", 0.0)
