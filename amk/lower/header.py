"""What a Program says beside its tasks: sizes, buffers, real numbers; and what there is no Program for."""

from __future__ import annotations

from amk.errors import RejectedProgramError, UnsupportedModelError
from amk.lower.builder import Builder
from amk.lower.setting import Setting
from amk.lower.sizes import SharedMemory
from amk.model.graph import ModelGraph
from schedule_ir.layout import KSTEP, KV_BLOCK, KV_ELEMENT_BYTES, TILE_ROWS, ceil_to
from schedule_ir.ops.linear import ACTIVATIONS
from schedule_ir.program import NEUTRAL_SCALARS, Buffer, Space
from schedule_ir.target import Target


def config_of(setting: Setting, packets: int) -> dict[str, int]:
    """The compile-time constants of the kernel."""
    g, knobs, memory = setting.graph, setting.knobs, setting.memory
    return {
        "sms": setting.sms,
        "layers": len(g.layers),
        "hidden": g.hidden,
        "hidden_padded": setting.hidden_padded,
        "intermediate": g.intermediate,
        "heads": g.heads,
        "kv_heads": g.kv_heads,
        "head_dim": g.head_dim,
        "head_dim_padded": ceil_to(g.head_dim, KSTEP),
        "rotary_dim": g.rope.dim,
        "rope_tables": len(g.ropes),
        "activation": tuple(ACTIVATIONS).index(g.activation),
        "vocab": g.vocab,
        "tied_head": int(g.tied_head),
        "max_seq": setting.max_seq,
        "max_seq_padded": ceil_to(setting.max_seq, KV_BLOCK),
        "kv_element_bytes": KV_ELEMENT_BYTES[setting.kv_dtype],
        "phases": len(g.layers) + 1,
        "partial_stride": g.head_dim + 2,
        "max_splits": setting.splits,
        "min_split_rows": ceil_to(knobs.min_split_rows, KV_BLOCK),
        "queries": min(g.group, knobs.max_queries),
        "compute_warps": knobs.compute_warps,
        "slot_bytes": memory.slot,
        "ring_stages": memory.stages,
        "reduce_slots": knobs.reduce_slots,
        # of copies of K/V, and low of all: the others carry their own limits
        "in_flight": setting.kv_in_flight.most,
        "in_flight_low": min(knobs.in_flight_low, memory.stages),
        "stocked": setting.kv_in_flight.stocked,
        "prefetch_chunks": knobs.prefetch_chunks,
        "loaded_tiles": setting.loaded_tiles,
        "prefetch_clocks": _prefetch_clocks(setting.target, memory.slot),
        "activation_ksteps": memory.activation // 64,
        "accumulators": memory.accumulators // (knobs.compute_warps * TILE_ROWS * 4),
        "shared_bytes": memory.total,
        "packets": packets,
    }


def buffers_of(setting: Setting, build: Builder, norm_rows: int, bias_words: int) -> list[Buffer]:
    """All memory that tasks read or write."""
    g, config = setting.graph, config_of(setting, build.mailboxes[-1].end)
    kv_row = 2 * config["head_dim_padded"] * config["kv_element_bytes"]
    rows = len(g.layers) * g.kv_heads * config["max_seq_padded"]
    buffers = [*build.mailboxes, Buffer("kv", Space.KV, 0, rows, kv_row)]
    buffers += [Buffer(f"tape.{sm}", Space.TAPE, 0, n, 512) for sm, n in enumerate(build.tape_atoms)]
    buffers += [
        Buffer("norms", Space.CONSTANT, 0, norm_rows * setting.hidden_padded, 4),
        Buffer("biases", Space.CONSTANT, 0, bias_words, 4),
        Buffer("rope", Space.CONSTANT, 0, len(g.ropes) * setting.max_seq * (g.rope.dim // 2), 8),
    ]
    return buffers + _shared_buffers(setting.memory)


def scalars_of(graph: ModelGraph) -> dict[str, float]:
    """The model's real numbers, without those that compute nothing."""
    optional = {name: float(getattr(graph, name)) for name in NEUTRAL_SCALARS}
    used = {name: value for name, value in optional.items() if value != NEUTRAL_SCALARS[name]}
    return {"eps": graph.norm_eps, "attention_scale": graph.attention_scale, **used}


def _prefetch_clocks(target: Target, slot_bytes: int) -> int:
    """SM clocks (at 1.7 GHz, near what the targets run at) in which memory reads a chunk for every SM."""
    return round(slot_bytes * target.sms / target.bandwidth * 1.7e9)


def _shared_buffers(memory: SharedMemory) -> list[Buffer]:
    buffers, offset = [], 0
    for name, size in memory.regions():
        buffers.append(Buffer(f"shared.{name}", Space.SHARED, offset, size, 1))
        offset += size
    return buffers


def check_sizes(graph: ModelGraph, max_seq: int, kv_dtype: str) -> None:
    """Raises RejectedProgramError or UnsupportedModelError for what cannot be lowered."""
    if kv_dtype not in KV_ELEMENT_BYTES:
        raise RejectedProgramError(f"kv_dtype {kv_dtype!r} is not one of {', '.join(KV_ELEMENT_BYTES)}")
    if graph.head.bias is not None:
        raise UnsupportedModelError(f"{graph.head.bias.name}: a bias of the output head is not supported")
    if max_seq < 1:
        raise RejectedProgramError(f"max_seq {max_seq} must be at least 1")
    if graph.activation not in ACTIVATIONS:
        raise UnsupportedModelError(f"activation {graph.activation!r} is not one of {', '.join(ACTIVATIONS)}")
    if len({rope.dim for rope in graph.ropes}) > 1:
        raise UnsupportedModelError("the model's rotary embeddings rotate different parts of a head, which amk lacks")
    for name, value in (("hidden_size", graph.hidden), ("head_dim", graph.head_dim)):
        if value % 2:
            raise UnsupportedModelError(f"{name} {value} is odd; only even sizes are supported")
