"""Rule 6: the ring in shared memory: what is copied is what is drained, in slots that are free."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from schedule_ir.layout import ATOM_BYTES, chunk_sizes, kv_block_bytes
from validator import describe
from validator.chains import MULTIPLIES
from validator.columns import Columns, Ints
from validator.matching import Matching
from validator.report import Violation

BARRIER_BYTES = 8
FLAG_BYTES = 64
CANDIDATE_BYTES = 8
REDUCE_ROWS = 17
MAX_REDUCE_SLOTS = 14
"""Of the 16 barriers of a block, one is for all threads and one for the compute warps."""

LINE = 16
TAPE = ("copy_tape", *MULTIPLIES)


def check(columns: Columns, matching: Matching) -> list[Violation]:
    """Theorem: the n-th chunk that is copied is the n-th that is drained, of the same number of bytes, at every
    position; it fits a slot; addresses and sizes are multiples of 16 bytes.

    Slot generations alternate and nobody lags a phase. With S slots, the stream lane copies chunk k after every compute
    warp has released chunk k - S. A warp waits for chunks in order, and releases them in order; in a multiplication of
    several chunks it waits for chunk c + 1 before it releases chunk c, everywhere else it holds one chunk at a time.
    - No phase is missed: when a warp waits for chunk k it has seen chunk k - S (which it released, if S >= 2 for chunks
      that it waits for ahead), and chunk k + S is not copied before it releases k. So the slot's barrier has completed
      the phase before that of k, and not the one after: its parity tells whether k has landed.
    - Waits end: take the warp with the lowest unreleased chunk c of its SM. It waits for c, or for c + 1 of the same
      copy. All chunks below c are released by all warps, so the stream lane has the slots of all up to c - 1 + S, which
      c + 1 is among if S >= 2 (`_ahead`). Between two chunks of one copy the stream lane waits for slots and landings
      only, and landings wait for nobody; before a copy it waits at most for the token before (rule 2).
    Copies in flight are at most the slots. The stream lane's own wait for a landing is of one of the chunks since the
    slot's last: its barrier goes on with a chunk that comes later, so the wait is never a phase late.
    """
    config, problems = columns.config, []
    problems += [Violation(6, message) for message in _slots(columns)]
    problems += _same_chunks(columns, matching)
    problems += [Violation(6, message) for message in (*_chunks(columns), *_ahead(columns))]
    problems += [Violation(6, message) for message in _limits(config)]
    return problems + _limits_of_copies(columns)


def _limits(config: Mapping[str, int]) -> list[str]:
    """Theorem: copies on their way are no more than the slots, and no other generation's barrier is asked for."""
    slots, broken = config["ring_stages"], []
    if not 1 <= config["in_flight_low"] <= slots or not 1 <= config["in_flight"] <= slots:
        flight = f"in_flight = {config['in_flight']}, in_flight_low = {config['in_flight_low']}"
        broken.append(f"{flight}: copies in flight must be between 1 and the {slots} slots")
    if not 0 <= config["stocked"] < slots:
        broken.append(f"stocked = {config['stocked']} looks past the {slots} slots: another phase's barrier")
    return broken


def _limits_of_copies(columns: Columns) -> list[Violation]:
    """The same of each copy's own limits."""
    copies, slots = columns.of("copy_tape"), columns.config["ring_stages"]
    in_flight, stocked = (columns.field(name, copies) for name in ("in_flight", "stocked"))
    bad = copies[(in_flight < 1) | (in_flight > slots) | (stocked < 0) | (stocked >= slots)]
    if not len(bad):
        return []
    message = f"a copy's in_flight must be between 1 and the {slots} slots, stocked between 0 and {slots - 1}"
    return [Violation(6, message, describe.task(columns, int(bad[0])))]


def _slots(columns: Columns) -> list[str]:
    """Theorem: ring, reduction slots, their barriers and the lanes' state lie in their regions of shared memory, and
    every region begins at a multiple of 16 bytes.

    The lanes' state, after the ring's barriers: a flag, then two sets of candidates of `sample`, one per warp and one.
    """
    config = columns.config
    slots, warps = config["reduce_slots"], config["compute_warps"]
    state = FLAG_BYTES + 2 * CANDIDATE_BYTES * (warps + 1)
    needed = {
        "ring": config["ring_stages"] * config["slot_bytes"],
        "barriers": 2 * BARRIER_BYTES * config["ring_stages"] + state,
        "reduce": slots * (REDUCE_ROWS * 2 * -(-warps // 2 // 4) * LINE + BARRIER_BYTES),
    }
    broken = []
    for name, need in needed.items():
        sizes = [b.size * b.element_bytes for b in columns.program.buffers if b.name == f"shared.{name}"]
        if len(sizes) != 1 or sizes[0] < need:
            broken.append(f"shared memory region {name!r} has {sizes} bytes; the slots of the config need {need}")
    broken += [
        f"shared memory region {buffer.name!r} at {buffer.offset} is not {LINE}-byte aligned"
        for buffer in columns.program.buffers
        if buffer.space == "shared" and buffer.offset % LINE
    ]
    if slots > MAX_REDUCE_SLOTS:
        broken.append(f"reduce_slots = {slots}; a block has barriers for {MAX_REDUCE_SLOTS}")
    if config["slot_bytes"] % LINE:
        broken.append(
            f"slot_bytes = {config['slot_bytes']} is not a multiple of {LINE}: bulk copies would be misaligned"
        )
    return broken


def _ahead(columns: Columns) -> list[str]:
    """Theorem: where a unit has several chunks there are two slots, as a warp holds one while it waits for the next."""
    stages = columns.config["ring_stages"]
    several = [v for v in columns.program.variants if v.op in MULTIPLIES and _chunk_count(v.constants) > 1]
    if stages >= 2 or not several:
        return []
    op, count = several[0].op, _chunk_count(several[0].constants)
    waits = f"op {op}: a warp holds chunk 1 of {count} while it waits for chunk 2"
    return [f"{waits}, which a ring of {stages} slot has no room for: deadlock; use at least 2 stages or whole units"]


def _chunk_count(constants: Mapping[str, int]) -> int:
    return -(-constants["ksteps"] // constants["chunk_ksteps"])


def _chunks(columns: Columns) -> list[str]:
    """Theorem: every chunk fits a slot and is a multiple of 16 bytes; a chunk never shifts k-steps between warps."""
    config, broken = columns.config, []
    for variant in columns.program.variants:
        if variant.op not in TAPE:
            continue
        total, chunk = variant.constants["ksteps"], variant.constants["chunk_ksteps"]
        most = max(chunk_sizes(min(total, 2 * chunk), chunk), default=0) * ATOM_BYTES
        if most > config["slot_bytes"]:
            broken.append(f"op {variant.op}: a chunk of {most} bytes does not fit a slot of {config['slot_bytes']}")
        if total > chunk and chunk % config["compute_warps"]:
            broken.append(
                f"op {variant.op}: chunk of {chunk} k-steps is not a multiple of {config['compute_warps']} warps"
            )
    if kv_block_bytes(config) > config["slot_bytes"]:
        broken.append(f"a K/V block of {kv_block_bytes(config)} bytes does not fit a slot of {config['slot_bytes']}")
    return broken


def _same_chunks(columns: Columns, matching: Matching) -> list[Violation]:
    """Theorem: copy_tape meets a multiplication of the same constants, copy_kv an attend of the same K/V head, split
    and window; so both sides count the same chunks and bytes, whatever the position.
    """
    drains = np.nonzero(matching.copy >= 0)[0]
    copies = matching.copy[drains]
    bad = np.nonzero(_identity(columns, drains) != _identity(columns, copies))[0]
    if not len(bad):
        return []
    copy, drain = int(copies[bad[0]]), int(drains[bad[0]])
    lines = f"{describe.task(columns, copy)}\n  fills the slots that are drained by\n{describe.task(columns, drain)}"
    return [Violation(6, "the ring's bytes are drained by a task that expects others", lines)]


def _identity(columns: Columns, tasks: Ints) -> Ints:
    """A number that agrees exactly where the chunks of a copy and of a drain agree."""
    variants = columns.program.variants
    tape = np.array([v.op in TAPE for v in variants], bool)[columns.opcode[tasks]]
    shape = columns.constant("ksteps", tasks) * (1 << 31) + columns.constant("chunk_ksteps", tasks)
    kv = columns.of("copy_kv", "attend")
    rows = np.zeros(columns.tasks, np.int64)
    rows[kv] = columns.field("kv_head", kv) * columns.config["max_splits"] + columns.field("split", kv)
    windows = {window: n for n, window in enumerate(np.unique(columns.constant("window", kv)))}
    rows[kv] = rows[kv] * len(windows) + [windows[window] for window in columns.constant("window", kv)]
    return np.where(tape, shape, -1 - rows[tasks])
