"""The header's sizes: memory, ring, configuration."""

from __future__ import annotations

import math
from typing import Any

from schedule_ir import REGISTRY
from tests.validator.kinds.kind import config, kind
from tests.validator.kinds.sheet import Sheet
from tests.validator.kinds.units import MULTIPLIES


@kind(6)
def ring_one_slot_short(sheet: Sheet) -> bool:
    sheet.buffer("shared.ring")["size"] -= sheet.header["config"]["slot_bytes"]
    return True


@kind(6)
def ring_slot_too_many(sheet: Sheet) -> bool:
    return config(sheet, "ring_stages", 1)


@kind(6)
def misaligned_slots(sheet: Sheet) -> bool:
    return config(sheet, "slot_bytes", -8)


@kind(6)
def copies_in_flight_beyond_ring(sheet: Sheet) -> bool:
    sheet.header["config"]["in_flight"] = sheet.header["config"]["ring_stages"] + 1
    return True


@kind(6)
def stocked_beyond_ring(sheet: Sheet) -> bool:
    sheet.header["config"]["stocked"] = sheet.header["config"]["ring_stages"]
    return True


@kind(6)
def copy_beyond_ring(sheet: Sheet) -> bool:
    """One copy may leave more on their way than there are slots, or asks for another generation's barrier."""
    key, place = sheet.rng.choice(sheet.find("copy_tape"))
    row = sheet.lanes[key][place]
    name = sheet.rng.choice(["in_flight", "stocked"])
    row[sheet.column(row, name)] = sheet.header["config"]["ring_stages"] + (name == "in_flight")
    return True


@kind(6)
def reduce_slot_too_many(sheet: Sheet) -> bool:
    return config(sheet, "reduce_slots", 2)


@kind(6)
def other_chunks(sheet: Sheet) -> bool:
    variant = sheet.rng.choice([v for v in sheet.header["variants"] if v["op"] in MULTIPLIES])
    variant["constants"] = {**variant["constants"], "chunk_ksteps": variant["constants"]["chunk_ksteps"] + 4}
    return True


@kind(6)
def more_ksteps(sheet: Sheet) -> bool:
    """K of a multiplication is larger than what is copied."""
    variant = sheet.rng.choice([v for v in sheet.header["variants"] if v["op"] in MULTIPLIES])
    variant["constants"] = {**variant["constants"], "ksteps": variant["constants"]["ksteps"] + 1}
    return True


@kind(12)
def rows_of_a_multiplication(sheet: Sheet) -> bool:
    """A unit is multiplied as one of the other number of rows."""
    return _other_rows(sheet, [v for v in sheet.header["variants"] if v["op"] in MULTIPLIES])


@kind(12)
def rows_of_a_publication(sheet: Sheet) -> bool:
    """A unit is published as one of the other number of rows."""
    return _other_rows(sheet, [v for v in sheet.header["variants"] if v["op"] == "publish"])


def _other_rows(sheet: Sheet, variants: list[dict[str, Any]]) -> bool:
    variant = sheet.rng.choice(variants)
    variant["constants"] = {**variant["constants"], "unit_rows": 24 - variant["constants"]["unit_rows"]}
    return True


@kind(9)
def rows_of_a_matrix(sheet: Sheet) -> bool:
    """A matrix lies in units of the other number of rows."""
    tiles = sheet.rng.choice(sheet.header["tiles"])
    tiles["unit_rows"] = 24 - tiles["unit_rows"]
    return True


@kind(9, 12)
def rows_of_a_band(sheet: Sheet) -> bool:
    """A band of a matrix's rows begins at others."""
    tiles = sheet.rng.choice(sheet.header["tiles"])
    tiles["first_row"] += sheet.rng.choice([-16, -8, 8, 16])
    return True


@kind(12)
def band_scaled_otherwise(sheet: Sheet) -> bool:
    """The norm's scale is applied to one of two bands of a matrix's rows only."""
    if not any(tiles["first_row"] for tiles in sheet.header["tiles"]):
        return False
    scaled = [v for v in sheet.header["variants"] if v["op"] == "publish" and v["constants"]["scaled"]]
    narrow = [v for v in scaled if v["constants"]["unit_rows"] == 8]
    if not narrow:
        return False
    variant = sheet.rng.choice(narrow)
    variant["constants"] = {**variant["constants"], "scaled": 0}
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
    return config(sheet, "phases", -1)


@kind(7, 8)
def position_beyond_cache(sheet: Sheet) -> bool:
    return config(sheet, "max_seq", 16)


@kind(7)
def cache_one_row_short(sheet: Sheet) -> bool:
    sheet.buffer("kv")["size"] -= 1
    return True


@kind(7)
def rows_of_heads_overlap(sheet: Sheet) -> bool:
    return config(sheet, "max_seq_padded", -16)


@kind()
def one_split_too_few(sheet: Sheet) -> bool:
    return sheet.header["config"]["max_splits"] > 1 and config(sheet, "max_splits", -1)


@kind()
def one_split_too_many(sheet: Sheet) -> bool:
    return config(sheet, "max_splits", 1)


@kind(7)
def splits_share_a_block(sheet: Sheet) -> bool:
    return config(sheet, "min_split_rows", 8)


@kind(8)
def mailbox_one_packet_short(sheet: Sheet) -> bool:
    boxes = {str(b["name"]) for b in sheet.header["buffers"]}
    names = ("qkv", "attention", "o", "mlp", "down", "down.0", "down.1", "best", "kv_released")
    name = sheet.rng.choice([n for n in names if n in boxes])
    used = sheet.buffer(name)
    narrow = any(tiles["unit_rows"] == 8 for tiles in sheet.header["tiles"])
    spare = 8 if narrow and name not in ("mlp", "best", "kv_released") else 0  # rows are rounded up to 16 all the same
    used["size"] -= spare + (1 if name != "mlp" else 8)
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
    return config(sheet, "shared_bytes", -128)


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


@kind(certain=False)
def random_config(sheet: Sheet) -> bool:
    name = sheet.rng.choice(sorted(sheet.header["config"]))
    return config(sheet, name, sheet.rng.choice([-16, -1, 1, 16]))


@kind(6)
def ring_of_one_slot(sheet: Sheet) -> bool:
    """A warp holds a chunk while it waits for the next of the same unit."""
    if not any(v["constants"]["ksteps"] > v["constants"]["chunk_ksteps"]
               for v in sheet.header["variants"] if v["op"] in MULTIPLIES):  # fmt: skip
        return False
    sheet.header["config"].update(ring_stages=1, in_flight=1, in_flight_low=1, stocked=0)
    return True


@kind(6)
def lane_state_too_small(sheet: Sheet) -> bool:
    """One candidate of the last warp lies beyond the region."""
    config = sheet.header["config"]
    sheet.buffer("shared.barriers")["size"] = 16 * config["ring_stages"] + 64 + 16 * (config["compute_warps"] + 1) - 8
    return True
