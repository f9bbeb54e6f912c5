"""Rule 8: every access stays inside its buffer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from schedule_ir.ops.attention import PROJECTION
from schedule_ir.program import Buffer
from validator import describe
from validator.columns import Columns, Ints
from validator.footprints import SPACES, Footprints
from validator.report import Violation

LONGEST = 2**31 - 1
PAIRED = ("gather", "add_norm", "add_post_norm", "sample", "combine")
"""Ops that read two packets with one 16-byte load."""


def check(columns: Columns, accesses: Footprints) -> list[Violation]:
    """Theorem: every packet, tape, norm, bias and logit access lies in one buffer of its space, buffers of a space do
    not overlap, element numbers fit 32 bits (byte offsets are 64-bit in the kernel), and every op's preconditions hold.
    """
    problems = [Violation(8, message) for message in _disjoint(columns)]
    problems += _empty(columns, accesses)
    problems += _packets(columns, accesses.of("packets"))
    problems += _tape(columns, accesses.of("tape"))
    problems += _constants(columns, accesses)
    problems += _logits(columns, accesses.of("logits"))
    problems += _preconditions(columns)
    return [*problems, *_aligned(columns)]


def _disjoint(columns: Columns) -> list[str]:
    """Theorem: buffers of one space do not overlap, names are unique, element numbers fit 32 bits."""
    broken, buffers = [], columns.program.buffers
    names = [buffer.name for buffer in buffers]
    if len(set(names)) != len(names):
        broken.append(f"two buffers are called {max(names, key=names.count)!r}")
    for space in ("packets", "kv", "shared"):
        ranked = sorted((b for b in buffers if b.space == space and b.size), key=lambda b: b.offset)
        for a, b in pairwise(ranked):
            if a.end > b.offset:
                broken.append(f"buffers {a.name!r} [{a.offset}, {a.end}) and {b.name!r} [{b.offset}, {b.end}) overlap")
    broken += [f"buffer {b.name!r} ends at element {b.end}, beyond 32-bit numbers" for b in buffers if b.end > LONGEST]
    return broken


def _outside(columns: Columns, accesses: Footprints, bad: Ints, limit: str) -> list[Violation]:
    if not len(bad):
        return []
    i = int(bad[0])
    space = SPACES[int(accesses.space[i])]
    start, end = int(accesses.start[i]), int(accesses.start[i] + accesses.length[i])
    verb = "writes" if accesses.write[i] else "reads"
    text = describe.task(columns, int(accesses.task[i]))
    return [Violation(8, f"{space} [{start}, {end}) is outside {limit}", f"{text}\n  {verb} elements [{start}, {end})")]


def _empty(columns: Columns, accesses: Footprints) -> list[Violation]:
    """Theorem: every access has a positive length and a start that is not negative."""
    return _outside(
        columns, accesses, np.nonzero((accesses.length < 1) | (accesses.start < 0))[0], "any buffer: it is empty"
    )


def _packets(columns: Columns, packets: Footprints) -> list[Violation]:
    """Theorem: an access lies in one mailbox."""
    boxes = sorted((b for b in columns.program.buffers if b.space == "packets"), key=lambda b: b.offset)
    end = max((b.end for b in boxes), default=0)
    if any(b.element_bytes != 8 for b in boxes) or end != columns.config["packets"]:
        return [
            Violation(8, f"mailboxes are not 8-byte packets up to {end} = config packets ({columns.config['packets']})")
        ]
    begins, ends = (np.array([value(b) for b in boxes], np.int64) for value in (_offset, _end))
    box = np.searchsorted(begins, packets.start, side="right") - 1
    inside = (box >= 0) & (packets.start + packets.length <= ends[np.maximum(box, 0)]) if boxes else packets.start < 0
    return _outside(columns, packets, np.nonzero(~inside)[0], "one mailbox")


def _offset(buffer: Buffer) -> int:
    return buffer.offset


def _end(buffer: Buffer) -> int:
    return buffer.end


def _tape(columns: Columns, tape: Footprints) -> list[Violation]:
    """Theorem: a copy lies in the tape of its own SM."""
    size = np.zeros(columns.sms, np.int64)
    for buffer in columns.program.buffers:
        number = buffer.name.removeprefix("tape.")
        if buffer.space == "tape" and number.isdecimal() and int(number) < columns.sms:
            size[int(number)] = buffer.size if buffer.offset == 0 and buffer.element_bytes == 512 else 0
    over = tape.start + tape.length > size[columns.sm[tape.task]]
    return _outside(columns, tape, np.nonzero(over)[0], "the tape of its SM")


def _constants(columns: Columns, accesses: Footprints) -> list[Violation]:
    """Theorem: norm rows and biases exist, the RoPE table has a row per position."""
    config, problems = columns.config, []
    sizes = {b.name: b.size for b in columns.program.buffers if b.space == "constant" and b.offset == 0}
    for space in ("norms", "biases"):
        chosen = accesses.of(space)
        over = np.nonzero(chosen.start + chosen.length > sizes.get(space, 0))[0]
        problems += _outside(columns, chosen, over, f"the {sizes.get(space, 0)} elements of {space}")
    rows = config["rope_tables"] * config["max_seq"] * (config["rotary_dim"] // 2)
    if sizes.get("rope", 0) < rows:
        problems.append(
            Violation(8, f"the RoPE table has {sizes.get('rope', 0)} entries; max_seq positions need {rows}")
        )
    return problems


def _logits(columns: Columns, logits: Footprints) -> list[Violation]:
    """Theorem: logits are written below vocab."""
    over = np.nonzero(logits.start + logits.length > columns.config["vocab"])[0]
    return _outside(columns, logits, over, f"the {columns.config['vocab']} logits")


def _preconditions(columns: Columns) -> list[Violation]:
    """Theorem: every variant satisfies its op's own preconditions, and its vectors fit their k-steps."""
    config, problems = columns.config, []
    for variant in columns.program.variants:
        messages = variant.spec.check(variant.constants, config)
        problems += [Violation(8, f"op {variant.op}: {message}") for message in messages]
        if variant.constants.get("stride", 0) % 2:
            problems.append(
                Violation(8, f"op {variant.op}: parts {variant.constants['stride']} packets apart are misaligned")
            )
        if variant.op in ("gather", "embed_norm", "add_norm", "add_post_norm"):
            length = variant.constants.get("length", config["hidden"])
            if variant.constants["ksteps"] * 16 < length:
                message = f"op {variant.op}: {length} elements do not fit {variant.constants['ksteps']} k-steps of 16"
                problems.append(Violation(8, message))
    return problems


def _aligned(columns: Columns) -> list[Violation]:
    """Theorem: ops that load packets in pairs start at even packets (16 bytes)."""
    tasks = columns.of(*PAIRED)
    names = {"combine": "part_src"}
    odd = np.zeros(len(tasks), bool)
    for op in PAIRED:
        mine = np.isin(tasks, columns.of(op))
        odd[mine] = columns.field(names.get(op, "src"), tasks[mine]) % 2 == 1
    if not odd.any() and columns.config["partial_stride"] % 2 == 0:
        return _attention_pairs(columns) or _norm_pairs(columns)
    bad = tasks[odd]
    text = describe.task(columns, int(bad[0])) if len(bad) else f"partial_stride = {columns.config['partial_stride']}"
    return [Violation(8, "packets are read in pairs of 16 bytes from an odd packet", text)]


def _attention_pairs(columns: Columns) -> list[Violation]:
    """Theorem: attention reads and writes the pairs of neighbouring dims of a head at even packets."""
    tasks = columns.of("attend")
    names = ("q_src", "k_src", "v_src", "part_dst", "out_dst")
    odd = np.stack([columns.field(name, tasks) % 2 == 1 for name in names]) if len(tasks) else np.zeros((5, 0), bool)
    bad = np.argwhere(odd)
    if not len(bad):
        return []
    which, task = bad[0].tolist()
    text = describe.task(columns, int(tasks[task]))
    return [Violation(8, f"attend takes packets in pairs of 16 bytes, and {names[which]} is odd", text)]


def _norm_pairs(columns: Columns) -> list[Violation]:
    """Theorem: a norm over all of q or k reads its packets in pairs from an even packet, and an even number of them."""
    tasks = columns.of("attend")
    tasks = tasks[columns.constant("qk_norm", tasks) == PROJECTION]
    odd = tasks[columns.field("qkv", tasks) % 2 == 1]
    if len(odd) or (len(tasks) and columns.config["head_dim"] % 2):
        text = describe.task(columns, int([*odd, *tasks][0]))
        return [Violation(8, "q and k are read in pairs of 16 bytes, which do not fit", text)]
    return []
