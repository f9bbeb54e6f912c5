"""Ways to break a schedule, applied to the device tables of real lowerings.

A mutation returns the broken tables, or None where it does not apply. `certain` ones are wrong by construction and must
be rejected; of the others the oracle says whether an accepted one is wrong.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from schedule_ir import REGISTRY, Tables
from schedule_ir.codec import LANES, SECTIONS

Row = list[int]
Key = tuple[int, int, int]


class Sheet:
    """Device tables, taken apart for editing."""

    def __init__(self, tables: Tables, rng: random.Random) -> None:
        self.rng = rng
        self.header: dict[str, Any] = {
            key: dict(value) if isinstance(value, dict) else [dict(v) if isinstance(v, dict) else v for v in value]
            if isinstance(value, list) else value
            for key, value in tables.header.items()
        }  # fmt: skip
        rows = tables.records.tolist()
        self.lanes: dict[Key, list[Row]] = {}
        for sm, lanes in enumerate(tables.ranges.tolist()):
            for lane, sections in enumerate(lanes):
                for section, (begin, end) in enumerate(sections):
                    self.lanes[sm, lane, section] = rows[begin:end]
        self.ops = [variant["op"] for variant in self.header["variants"]]

    def tables(self) -> Tables:
        """Put together again."""
        sms = 1 + max(key[0] for key in self.lanes)
        ranges = np.zeros((sms, len(LANES), len(SECTIONS), 2), np.int32)
        rows: list[Row] = []
        for key in sorted(self.lanes):
            begin = len(rows)
            rows += self.lanes[key]
            ranges[key] = begin, len(rows)
        return Tables(self.header, np.array(rows, np.int64).reshape(-1, 12).astype(np.int32), ranges)

    def find(self, *ops: str) -> list[tuple[Key, int]]:
        """(lane, place) of every task of these ops."""
        return [(key, i) for key, rows in self.lanes.items() for i, row in enumerate(rows) if self.ops[row[0]] in ops]

    def any(self, *ops: str) -> tuple[list[Row], int, Row] | None:
        """A random task of these ops: its lane, place and row."""
        found = self.find(*ops)
        if not found:
            return None
        key, place = self.rng.choice(found)
        return self.lanes[key], place, self.lanes[key][place]

    def column(self, row: Row, name: str) -> int:
        """Which word of a row holds the field."""
        return REGISTRY[self.ops[row[0]]].fields.index(name) + 1

    def buffer(self, name: str) -> dict[str, Any]:
        """The header's entry of a buffer."""
        return next(b for b in self.header["buffers"] if b["name"] == name)


Mutation = Callable[[Sheet], bool]


@dataclass(frozen=True)
class Kind:
    """A mutation: whether it is wrong by construction, and the rules that may name it."""

    name: str
    apply: Mutation
    certain: bool
    rules: frozenset[int]


KINDS: list[Kind] = []


def kind(*rules: int, certain: bool = True) -> Callable[[Mutation], Mutation]:
    """Registers a mutation that one of these rules must name (none given: any)."""

    def register(apply: Mutation) -> Mutation:
        KINDS.append(Kind(apply.__name__, apply, certain, frozenset(rules)))
        return apply

    return register


def mutate(tables: Tables, which: Kind, rng: random.Random) -> Tables | None:
    """The broken tables; None where the kind does not apply or changes nothing."""
    sheet = Sheet(tables, rng)
    if not which.apply(sheet):
        return None
    broken = sheet.tables()
    same = broken.records.shape == tables.records.shape and (broken.records == tables.records).all()
    return None if same and (broken.ranges == tables.ranges).all() and broken.header == tables.header else broken


# Tasks that are missing


def _drop(sheet: Sheet, *ops: str) -> bool:
    found = sheet.any(*ops)
    if found:
        del found[0][found[1]]
    return found is not None


def _unit(sheet: Sheet, taker: str) -> tuple[int, int, tuple[int, int, int]] | None:
    """(SM, section, places) of the copy, the gemv and the taker of a random unit."""
    found = sheet.find(taker)
    if not found:
        return None
    (sm, _, section), place = sheet.rng.choice(found)
    epilogue = sheet.lanes[sm, 2, section]
    rank = sum(sheet.ops[row[0]] in ("publish", "head") for row in epilogue[:place])
    gemvs = [i for i, row in enumerate(sheet.lanes[sm, 1, section]) if sheet.ops[row[0]] == "gemv"]
    copies = [i for i, row in enumerate(sheet.lanes[sm, 0, section]) if sheet.ops[row[0]] == "copy_tape"]
    return sm, section, (copies[rank], gemvs[rank], place)


@kind(6)
def dropped_copy(sheet: Sheet) -> bool:
    return _drop(sheet, "copy_tape")


@kind(2, 6)
def dropped_gemv(sheet: Sheet) -> bool:
    return _drop(sheet, "gemv")


@kind(2)
def dropped_publish(sheet: Sheet) -> bool:
    return _drop(sheet, "publish", "head")


@kind(3, 9)
def missing_tile(sheet: Sheet) -> bool:
    unit = _unit(sheet, "publish")
    if unit:
        for lane, place in enumerate(unit[2]):
            del sheet.lanes[unit[0], lane, unit[1]][place]
    return unit is not None


@kind(9)
def missing_head_tile(sheet: Sheet) -> bool:
    unit = _unit(sheet, "head")
    if unit:
        for lane, place in enumerate(unit[2]):
            del sheet.lanes[unit[0], lane, unit[1]][place]
    return unit is not None


@kind()
def dropped_wait(sheet: Sheet) -> bool:
    """A gather is a lane's wait for other SMs."""
    return _drop(sheet, "gather")


@kind(certain=False)
def dropped_norm(sheet: Sheet) -> bool:
    return _drop(sheet, "add_norm", "embed_norm")


@kind(3, 6, 9, 12)
def dropped_attend(sheet: Sheet) -> bool:
    return _drop(sheet, "attend")


@kind(6)
def dropped_kv_copy(sheet: Sheet) -> bool:
    return _drop(sheet, "copy_kv")


@kind(3, 9, 12)
def dropped_split(sheet: Sheet) -> bool:
    """An attend with its copy: a gap in the splits."""
    found = sheet.any("attend")
    if not found:
        return False
    lane, place, row = found
    key = (row[sheet.column(row, "kv_head")], row[sheet.column(row, "split")])
    del lane[place]
    for owner, i in sheet.find("copy_kv"):
        other = sheet.lanes[owner][i]
        if (other[1], other[2]) == key:
            del sheet.lanes[owner][i]
            return True
    return False


@kind(3, 12)
def dropped_combine(sheet: Sheet) -> bool:
    return _drop(sheet, "combine")


@kind(5)
def dropped_acquire(sheet: Sheet) -> bool:
    return _drop(sheet, "kv_acquire")


@kind(3, 5)
def dropped_release(sheet: Sheet) -> bool:
    return _drop(sheet, "kv_release")


@kind(12)
def dropped_sample(sheet: Sheet) -> bool:
    return _drop(sheet, "sample")


@kind(3, 12)
def dropped_best(sheet: Sheet) -> bool:
    return _drop(sheet, "publish_best")


# Tasks that are there twice


@kind(3, 9)
def tile_twice(sheet: Sheet) -> bool:
    unit = _unit(sheet, "publish")
    if unit:
        for lane, place in enumerate(unit[2]):
            tasks = sheet.lanes[unit[0], lane, unit[1]]
            tasks.insert(place, list(tasks[place]))
    return unit is not None


@kind(3, 12)
def doubled_producer(sheet: Sheet) -> bool:
    first, second = sheet.any("publish"), sheet.any("publish")
    if not first or not second or first[2][1:3] == second[2][1:3]:
        return False
    first[2][1:3] = second[2][1:3]
    return True


@kind(9)
def append_twice(sheet: Sheet) -> bool:
    """Another split's task takes over a task's K/V head and split."""
    found = sheet.find("attend")
    if len(found) < 2:
        return False
    (a, i), (b, j) = sheet.rng.sample(found, 2)
    sheet.lanes[a][i] = list(sheet.lanes[b][j])
    return True


@kind(9)
def no_append(sheet: Sheet) -> bool:
    found = sheet.any("attend")
    if found:
        found[2][sheet.column(found[2], "append")] ^= 1
    return found is not None


# Arguments that are off


def _nudge(sheet: Sheet, field: str, ops: tuple[str, ...], steps: tuple[int, ...]) -> bool:
    found = sheet.any(*ops)
    if not found:
        return False
    row, column = found[2], sheet.column(found[2], field)
    row[column] = max(0, row[column] + sheet.rng.choice(steps))
    return True


@kind()
def wrong_tag(sheet: Sheet) -> bool:
    ops = ("publish", "gather", "add_norm", "attend", "combine", "sample", "publish_best", "kv_release", "kv_acquire")
    return _nudge(sheet, "phase", ops, (-1, 1, 2))


@kind(3, 8, 12)
def wrong_destination(sheet: Sheet) -> bool:
    return _nudge(sheet, "dst", ("publish", "publish_best"), (-16, -8, -1, 1, 8, 16))


@kind()
def wrong_source(sheet: Sheet) -> bool:
    return _nudge(sheet, "src", ("gather", "add_norm", "sample", "kv_acquire"), (-2, 2, 16, 1))


@kind()
def wrong_release(sheet: Sheet) -> bool:
    return _nudge(sheet, "dst", ("kv_release",), (-1, 1))


@kind()
def wrong_query(sheet: Sheet) -> bool:
    return _nudge(sheet, sheet.rng.choice(["q_src", "k_src", "v_src"]), ("attend",), (-16, -1, 1, 16))


@kind()
def wrong_partial(sheet: Sheet) -> bool:
    if sheet.header["config"]["max_splits"] == 1:
        return False
    return (
        _nudge(sheet, "part_dst", ("attend",), (-2, 2, 34))
        if sheet.rng.random() < 0.5
        else _nudge(sheet, "part_src", ("combine",), (-2, 2, 34))
    )


@kind()
def wrong_output(sheet: Sheet) -> bool:
    return _nudge(sheet, "out_dst", ("attend", "combine"), (-16, -1, 1, 16))


@kind()
def overlapping_split(sheet: Sheet) -> bool:
    """An attend (and its copy) works on a neighbour's split: rows twice, and rows not at all."""
    found = sheet.any("attend")
    if not found or sheet.header["config"]["max_splits"] == 1:
        return False
    row = found[2]
    key = (row[sheet.column(row, "kv_head")], row[sheet.column(row, "split")])
    split = (key[1] + 1) % sheet.header["config"]["max_splits"]
    row[sheet.column(row, "split")] = split
    for owner, i in sheet.find("copy_kv"):
        if tuple(sheet.lanes[owner][i][1:3]) == key:
            sheet.lanes[owner][i][2] = split
            return True
    return False


@kind(1, 6)
def wrong_split_copied(sheet: Sheet) -> bool:
    return sheet.header["config"]["max_splits"] > 1 and _nudge(sheet, "split", ("copy_kv",), (-1, 1))


@kind(1, 6)
def wrong_kv_head(sheet: Sheet) -> bool:
    return _nudge(sheet, "kv_head", ("copy_kv",), (-1, 1))


@kind(8, 12)
def wrong_norm(sheet: Sheet) -> bool:
    return _nudge(sheet, "norm", ("embed_norm", "add_norm"), (-1, 1))


@kind(8, 9)
def tile_beyond_vocab(sheet: Sheet) -> bool:
    return _nudge(sheet, "row", ("head",), (-16, 1, 8, 16, 4096))


@kind(8, 9)
def misplaced_copy(sheet: Sheet) -> bool:
    return _nudge(sheet, "offset", ("copy_tape",), (-1, 1, 2))


@kind(8)
def tile_beyond_tape(sheet: Sheet) -> bool:
    return _nudge(sheet, "offset", ("copy_tape",), (100_000,))


@kind(9)
def other_tile(sheet: Sheet) -> bool:
    first, second = sheet.any("copy_tape"), sheet.any("copy_tape")
    if not first or not second:
        return False
    first[2][1] = second[2][1]
    return True


@kind(1, 8, 12)
def wrong_bias(sheet: Sheet) -> bool:
    biased = [(k, i) for k, i in sheet.find("publish") if _constants(sheet, sheet.lanes[k][i])["biased"]]
    if not biased:
        return False
    key, place = sheet.rng.choice(biased)
    sheet.lanes[key][place][3] += sheet.rng.choice([-16, -1, 1, 16, 100_000])
    return True


def _constants(sheet: Sheet, row: Row) -> dict[str, int]:
    constants: dict[str, int] = sheet.header["variants"][row[0]]["constants"]
    return constants


@kind(1)
def negative_argument(sheet: Sheet) -> bool:
    found = sheet.any("copy_tape", "publish", "gather", "attend")
    if found:
        found[2][1] = -1 - found[2][1]
    return found is not None


@kind()
def beyond_int32(sheet: Sheet) -> bool:
    """Start plus length exceeds 32 bits."""
    found = sheet.any("copy_tape", "publish", "gather", "kv_release")
    if found:
        found[2][1] = 2**31 - 1
    return found is not None


@kind(certain=False)
def random_word(sheet: Sheet) -> bool:
    key = sheet.rng.choice([k for k, rows in sheet.lanes.items() if rows])
    row = sheet.rng.choice(sheet.lanes[key])
    row[sheet.rng.randrange(12)] += sheet.rng.choice([-16, -2, -1, 1, 2, 16, 1000])
    return True


@kind(certain=False)
def other_opcode(sheet: Sheet) -> bool:
    key = sheet.rng.choice([k for k, rows in sheet.lanes.items() if rows])
    row = sheet.rng.choice(sheet.lanes[key])
    row[0] = sheet.rng.randrange(len(sheet.ops) + 1)
    return True


# Order within lanes


@kind(certain=False)
def swapped_neighbours(sheet: Sheet) -> bool:
    rows = sheet.rng.choice([rows for rows in sheet.lanes.values() if len(rows) > 1])
    i = sheet.rng.randrange(len(rows) - 1)
    rows[i], rows[i + 1] = rows[i + 1], rows[i]
    return True


@kind(certain=False)
def moved_task(sheet: Sheet) -> bool:
    rows = sheet.rng.choice([rows for rows in sheet.lanes.values() if len(rows) > 1])
    rows.insert(sheet.rng.randrange(len(rows)), rows.pop(sheet.rng.randrange(len(rows))))
    return True


@kind(certain=False)
def cross_lane_cycle(sheet: Sheet) -> bool:
    """Whole units go behind a later wait on the same SM: the two-SM deadlock."""
    waits = [(k, i) for k, i in sheet.find("gather", "add_norm", "attend", "combine") if i > 0]
    if not waits:
        return False
    (key, place) = sheet.rng.choice(waits)
    rows = sheet.lanes[key]
    target = sheet.rng.randrange(place)
    rows.insert(target, rows.pop(place))
    return True


@kind(certain=False)
def early_release(sheet: Sheet) -> bool:
    found = sheet.any("kv_release")
    if found:
        found[0].insert(0, found[0].pop(found[1]))
    return found is not None


@kind(5)
def late_acquire(sheet: Sheet) -> bool:
    found = sheet.any("kv_acquire")
    if not found:
        return False
    rows = found[0]
    rows.append(rows.pop(found[1]))
    return True


@kind(certain=False)
def early_best(sheet: Sheet) -> bool:
    found = sheet.any("publish_best", "sample")
    if found:
        found[0].insert(0, found[0].pop(found[1]))
    return found is not None and len(found[0]) > 1


@kind(certain=False)
def swapped_units(sheet: Sheet) -> bool:
    """Two units of an SM change places in all three lanes; right if they are of one matrix."""
    first, second = _unit(sheet, "publish"), _unit(sheet, "publish")
    if not first or not second or first[:2] != second[:2]:
        return False
    for lane in range(3):
        rows = sheet.lanes[first[0], lane, first[1]]
        i, j = first[2][lane], second[2][lane]
        rows[i], rows[j] = rows[j], rows[i]
    return True


@kind()
def wrong_sm(sheet: Sheet) -> bool:
    """A unit is moved to another SM, whose tape does not hold it."""
    unit = _unit(sheet, "publish")
    if not unit or sheet.header["config"]["sms"] < 2:
        return False
    other = (unit[0] + 1) % sheet.header["config"]["sms"]
    for lane, place in enumerate(unit[2]):
        row = sheet.lanes[unit[0], lane, unit[1]].pop(place)
        sheet.lanes[other, lane, unit[1]].append(row)
    return True


@kind(certain=False)
def body_to_head(sheet: Sheet) -> bool:
    """A unit of the body's end becomes part of the head, which most prompt tokens skip."""
    sm = sheet.rng.randrange(sheet.header["config"]["sms"])
    moved = False
    for lane, ops in enumerate((("copy_tape",), ("gemv",), ("publish",))):
        rows = sheet.lanes[sm, lane, 0]
        places = [i for i, row in enumerate(rows) if sheet.ops[row[0]] in ops]
        if not places:
            return False
        sheet.lanes[sm, lane, 1].insert(0, rows.pop(places[-1]))
        moved = True
    return moved


# The header: sizes, buffers, meaning


def _config(sheet: Sheet, name: str, change: int) -> bool:
    sheet.header["config"][name] += change
    return True


@kind(6)
def ring_one_slot_short(sheet: Sheet) -> bool:
    sheet.buffer("shared.ring")["size"] -= sheet.header["config"]["slot_bytes"]
    return True


@kind(6)
def ring_slot_too_many(sheet: Sheet) -> bool:
    return _config(sheet, "ring_stages", 1)


@kind(6)
def misaligned_slots(sheet: Sheet) -> bool:
    return _config(sheet, "slot_bytes", -8)


@kind(6)
def copies_in_flight_beyond_ring(sheet: Sheet) -> bool:
    sheet.header["config"]["in_flight"] = sheet.header["config"]["ring_stages"] + 1
    return True


@kind(6)
def stocked_beyond_ring(sheet: Sheet) -> bool:
    sheet.header["config"]["stocked"] = sheet.header["config"]["ring_stages"]
    return True


@kind(6)
def reduce_slot_too_many(sheet: Sheet) -> bool:
    return _config(sheet, "reduce_slots", 2)


@kind(6)
def other_chunks(sheet: Sheet) -> bool:
    variants = [v for v in sheet.header["variants"] if v["op"] == "gemv"]
    variant = sheet.rng.choice(variants)
    variant["constants"] = {**variant["constants"], "chunk_ksteps": variant["constants"]["chunk_ksteps"] + 4}
    return True


@kind(6)
def more_ksteps(sheet: Sheet) -> bool:
    """K of a multiplication is larger than what is copied."""
    variant = sheet.rng.choice([v for v in sheet.header["variants"] if v["op"] == "gemv"])
    variant["constants"] = {**variant["constants"], "ksteps": variant["constants"]["ksteps"] + 1}
    return True


@kind(8, 9, 12)
def activation_beyond_buffer(sheet: Sheet) -> bool:
    variants = [v for v in sheet.header["variants"] if v["op"] in ("gather", "add_norm", "embed_norm")]
    variant = sheet.rng.choice(variants)
    variant["constants"] = {**variant["constants"], "ksteps": 100_000}
    return True


@kind(1)
def negative_tile(sheet: Sheet) -> bool:
    variant = sheet.rng.choice([v for v in sheet.header["variants"] if v["constants"]])
    name = sheet.rng.choice(list(variant["constants"]))
    variant["constants"] = {**variant["constants"], name: -4}
    return True


@kind()
def wrong_flag(sheet: Sheet) -> bool:
    """Norm scale, gate or bias where there is none, or the reverse."""
    variant = sheet.rng.choice([v for v in sheet.header["variants"] if v["op"] == "publish"])
    name = sheet.rng.choice(["scaled", "gated", "biased"])
    variant["constants"] = {**variant["constants"], name: 1 - variant["constants"][name]}
    return True


@kind()
def too_many_queries(sheet: Sheet) -> bool:
    variant = next(v for v in sheet.header["variants"] if v["op"] == "attend")
    variant["constants"] = {"queries": variant["constants"]["queries"] + sheet.rng.choice([1, 8])}
    return True


@kind(10)
def tags_of_two_epochs(sheet: Sheet) -> bool:
    """One phase too few: the last phase of an epoch has the first tag of the next, so a wait is satisfied too early."""
    return _config(sheet, "phases", -1)


@kind(7, 8)
def position_beyond_cache(sheet: Sheet) -> bool:
    return _config(sheet, "max_seq", 16)


@kind(7)
def cache_one_row_short(sheet: Sheet) -> bool:
    sheet.buffer("kv")["size"] -= 1
    return True


@kind(7)
def rows_of_heads_overlap(sheet: Sheet) -> bool:
    return _config(sheet, "max_seq_padded", -16)


@kind()
def one_split_too_few(sheet: Sheet) -> bool:
    return sheet.header["config"]["max_splits"] > 1 and _config(sheet, "max_splits", -1)


@kind()
def one_split_too_many(sheet: Sheet) -> bool:
    return _config(sheet, "max_splits", 1)


@kind(7)
def splits_share_a_block(sheet: Sheet) -> bool:
    return _config(sheet, "min_split_rows", 8)


@kind(8)
def mailbox_one_packet_short(sheet: Sheet) -> bool:
    boxes = {str(b["name"]) for b in sheet.header["buffers"]}
    names = ("qkv", "attention", "o", "mlp", "down", "down.0", "down.1", "best", "kv_released")
    name = sheet.rng.choice([n for n in names if n in boxes])
    used = sheet.buffer(name)
    used["size"] -= 1 if name != "mlp" else 8
    return True


@kind(8)
def buffers_overlap(sheet: Sheet) -> bool:
    boxes = [b for b in sheet.header["buffers"] if str(b["space"]) == "packets" and b["size"]]
    i = sheet.rng.randrange(len(boxes) - 1)
    boxes[i + 1]["offset"] = boxes[i]["offset"] + boxes[i]["size"] - 1
    return True


@kind(certain=False)
def aliased_mailboxes(sheet: Sheet) -> bool:
    """Two mailboxes become one: every access to the second goes to the first; right only if their lives are apart."""
    boxes = [
        b for b in sheet.header["buffers"] if str(b["space"]) == "packets" and b["name"] not in ("best", "kv_released")
    ]
    first, second = sheet.rng.sample(boxes, 2)
    if second["size"] > first["size"]:
        first, second = second, first
    low, high = second["offset"], second["offset"] + second["size"]
    fields = {"src", "dst", "q_src", "k_src", "v_src", "part_dst", "part_src", "out_dst"}
    for rows in sheet.lanes.values():
        for row in rows:
            for place, name in enumerate(REGISTRY[sheet.ops[row[0]]].fields):
                if (
                    name in fields
                    and low <= row[place + 1] < high
                    and sheet.ops[row[0]] not in ("kv_release", "kv_acquire")
                ):
                    row[place + 1] += first["offset"] - low
    return True


@kind(11)
def too_much_shared_memory(sheet: Sheet) -> bool:
    grown = sheet.buffer("shared.barriers")
    grown["size"] += 400_000_000
    sheet.header["config"]["shared_bytes"] += 400_000_000
    return True


@kind(11)
def shared_regions_disagree(sheet: Sheet) -> bool:
    return _config(sheet, "shared_bytes", -128)


@kind(11)
def grid_one_block_too_large(sheet: Sheet) -> bool:
    sheet.header["target"]["sms"] = sheet.header["config"]["sms"] - 1
    return True


@kind(11)
def too_many_threads(sheet: Sheet) -> bool:
    sheet.header["config"]["compute_warps"] = 64
    return True


@kind(1, 12)
def scale_not_finite(sheet: Sheet) -> bool:
    name = sheet.rng.choice(["eps", "attention_scale"])
    sheet.header["scalars"] = {**sheet.header["scalars"], name: sheet.rng.choice([math.nan, math.inf, -1.0, 0.0])}
    return True


@kind(12)
def other_scale(sheet: Sheet) -> bool:
    sheet.header["scalars"] = {**sheet.header["scalars"], "eps": 1e-6}
    return True


@kind(12)
def norms_swapped(sheet: Sheet) -> bool:
    names = sheet.header["norms"] = list(sheet.header["norms"])
    i, j = sheet.rng.sample(range(len(names)), 2)
    names[i], names[j] = names[j], names[i]
    return True


@kind(12)
def layers_swapped(sheet: Sheet) -> bool:
    """Two matrices of one shape change names."""
    tiles = sheet.header["tiles"]
    i, j = sheet.rng.sample(range(len(tiles)), 2)
    a, b = tiles[i], tiles[j]
    if (a["rows"], a["columns"], a["interleaved"]) != (b["rows"], b["columns"], b["interleaved"]):
        return False
    a["tensors"], b["tensors"] = b["tensors"], a["tensors"]
    return True


@kind(9, 12)
def units_swapped(sheet: Sheet) -> bool:
    """Two units of a matrix lie in each other's place."""
    tiles = sheet.rng.choice(sheet.header["tiles"])
    if len(tiles["sms"]) < 2:
        return False
    i, j = sheet.rng.sample(range(len(tiles["sms"])), 2)
    for name in ("sms", "offsets"):
        values = list(tiles[name])
        values[i], values[j] = values[j], values[i]
        tiles[name] = tuple(values)
    return True


@kind(9, 12)
def columns_shifted(sheet: Sheet) -> bool:
    tiles = sheet.rng.choice(sheet.header["tiles"])
    tiles["columns"] = (tiles["columns"][0] + 1, tiles["columns"][1] + 1)
    return True


@kind(9, 12)
def stacked_not_interleaved(sheet: Sheet) -> bool:
    tiles = sheet.rng.choice([t for t in sheet.header["tiles"] if t["interleaved"]])
    tiles["interleaved"] = False
    return True


@kind(12)
def biases_missing(sheet: Sheet) -> bool:
    if not sheet.header["biases"]:
        return False
    sheet.header["biases"] = sheet.header["biases"][1:]
    return True


@kind(certain=False)
def random_config(sheet: Sheet) -> bool:
    name = sheet.rng.choice(sorted(sheet.header["config"]))
    return _config(sheet, name, sheet.rng.choice([-16, -1, 1, 16]))


# The encoding


@kind(1)
def word_after_the_fields(sheet: Sheet) -> bool:
    rows = [row for rows in sheet.lanes.values() for row in rows if len(REGISTRY[sheet.ops[row[0]]].fields) < 11]
    sheet.rng.choice(rows)[11] = 7
    return True


@kind(1)
def opcode_beyond_variants(sheet: Sheet) -> bool:
    key = sheet.rng.choice([k for k, rows in sheet.lanes.items() if rows])
    sheet.rng.choice(sheet.lanes[key])[0] = len(sheet.ops)
    return True


@kind(1)
def task_of_another_lane(sheet: Sheet) -> bool:
    found = sheet.any("gemv", "publish", "copy_tape")
    if not found:
        return False
    key = next(k for k, rows in sheet.lanes.items() if rows is found[0])
    sheet.lanes[key[0], (key[1] + 1) % 3, key[2]].append(found[0].pop(found[1]))
    return True


@kind(1)
def unknown_header_field(sheet: Sheet) -> bool:
    sheet.header["surprise"] = 1
    return True


@kind(1)
def lost_config(sheet: Sheet) -> bool:
    del sheet.header["config"][sheet.rng.choice(["phases", "max_seq", "ring_stages", "reduce_slots"])]
    return True
