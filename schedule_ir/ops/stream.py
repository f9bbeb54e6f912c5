"""Stream lane: copies into the shared-memory ring, in the order in which the compute lane drains it.

The ring is a FIFO of slots. The stream lane waits only for free slots (mbarriers), never for activations, with one
exception: K/V rows of the token before, once per token (`kv_acquire`).
"""

from __future__ import annotations

from schedule_ir.expr import ExprLike, ceil_div
from schedule_ir.layout import ATOM_BYTES, KV_BLOCK, chunk_sizes, kv_block_bytes, split_begin, split_end
from schedule_ir.op import Access, Args, Cost, How, Instance, Lane, Op


def _tape_access(args: Args, constants: Args, config: Args) -> list[Access]:
    return [Access("tape", args["offset"], constants["ksteps"], False, How.BULK)]


def _tape_cost(args: Args, constants: Args, config: Args) -> Cost:
    return Cost(bytes=constants["ksteps"] * ATOM_BYTES)


def _tape_chunks(args: Args, constants: Args, config: Args) -> int:
    return len(chunk_sizes(constants["ksteps"], constants["chunk_ksteps"]))


def _tape_instance(constants: Args, config: Args) -> Instance:
    return (), (constants["ksteps"], constants["chunk_ksteps"])


def _chunk_check(constants: Args, config: Args) -> list[str]:
    size = constants["chunk_ksteps"] * ATOM_BYTES
    if size > config["slot_bytes"]:
        return [f"chunk of {size} bytes does not fit a ring slot of {config['slot_bytes']}"]
    return []


def check_window(constants: Args, config: Args) -> list[str]:
    """A block whose rows are all masked would have no maximum: a window shows a cached row at least."""
    return ["a window of 1 position shows no cached row; use 2 or more"] if constants["window"] == 1 else []


def kv_active(split: int, window: int, config: Args) -> ExprLike:
    """Cached rows of a split at `pos`; zero where the split is inactive."""
    return split_end(config, split, window) - split_begin(config, split, window)


def windowed(constants: Args, config: Args) -> Instance:
    """run(.., window): layers of all windows share code."""
    return (), (constants["window"],)


def _kv_access(args: Args, constants: Args, config: Args) -> list[Access]:
    """Whole blocks of 16 rows are copied: rows outside the window or from `pos` on are masked by the consumer."""
    rows = kv_active(args["split"], constants["window"], config)
    begin = split_begin(config, args["split"], constants["window"]) + args["kv_head"] * config["max_seq_padded"]
    return [Access("kv", begin, ceil_div(rows, KV_BLOCK) * KV_BLOCK, False, How.BULK, active=rows)]


def _kv_cost(args: Args, constants: Args, config: Args) -> Cost:
    rows = kv_active(args["split"], constants["window"], config)
    return Cost(bytes=ceil_div(rows, KV_BLOCK) * kv_block_bytes(config))


def kv_chunks(args: Args, constants: Args, config: Args) -> ExprLike:
    """Ring slots that the K/V rows of a split take."""
    blocks = config["slot_bytes"] // kv_block_bytes(config)
    return ceil_div(kv_active(args["split"], constants["window"], config), blocks * KV_BLOCK)


def _acquire_access(args: Args, constants: Args, config: Args) -> list[Access]:
    return [Access("packets", args["src"], config["sms"], False, How.PACKET, phase=args["phase"], previous_epoch=True)]


OPS = (
    Op(
        "copy_tape", Lane.STREAM, ("offset", "in_flight", "stocked"), ("ksteps", "chunk_ksteps"), "CopyTape",
        "copy one unit (`ksteps` tiles of 16 x 16) from the SM's tape, `offset` in atoms of 512 bytes; of its chunks "
        "`in_flight` are on their way at most, or in_flight_low where `stocked` slots are taken as one is asked for",
        _tape_access, _tape_cost, _chunk_check, _tape_chunks, _tape_instance,
    ),
    Op(
        "copy_kv", Lane.STREAM, ("kv_head", "split"), ("window",), "CopyKv",
        "copy the cached K/V blocks of a split (of the last `window` positions, 0: of all); "
        "kv_head counts over layers: layer * kv_heads + head",
        _kv_access, _kv_cost, check_window, kv_chunks, windowed,
    ),
    Op(
        "kv_acquire", Lane.STREAM, ("src", "phase"), (), "KvAcquire",
        "wait until every SM has released the K/V rows that it appended for the token before",
        _acquire_access,
    ),
)  # fmt: skip
