"""Arguments that are off."""

from __future__ import annotations

from tests.validator.kinds.kind import kind, nudge
from tests.validator.kinds.sheet import Sheet


@kind()
def wrong_tag(sheet: Sheet) -> bool:
    ops = ("publish", "gather", "add_norm", "attend", "combine", "sample", "publish_best", "kv_release", "kv_acquire")
    return nudge(sheet, "phase", ops, (-1, 1, 2))


@kind(3, 8, 12)
def wrong_destination(sheet: Sheet) -> bool:
    return nudge(sheet, "dst", ("publish", "publish_best"), (-16, -8, -1, 1, 8, 16))


@kind()
def wrong_source(sheet: Sheet) -> bool:
    return nudge(sheet, "src", ("gather", "add_norm", "sample", "kv_acquire"), (-2, 2, 16, 1))


@kind()
def wrong_release(sheet: Sheet) -> bool:
    return nudge(sheet, "dst", ("kv_release",), (-1, 1))


@kind()
def wrong_query(sheet: Sheet) -> bool:
    return nudge(sheet, sheet.rng.choice(["q_src", "k_src", "v_src"]), ("attend",), (-16, -1, 1, 16))


@kind()
def wrong_partial(sheet: Sheet) -> bool:
    if sheet.header["config"]["max_splits"] == 1:
        return False
    return (
        nudge(sheet, "part_dst", ("attend",), (-2, 2, 34))
        if sheet.rng.random() < 0.5
        else nudge(sheet, "part_src", ("combine",), (-2, 2, 34))
    )


@kind()
def wrong_output(sheet: Sheet) -> bool:
    return nudge(sheet, "out_dst", ("attend", "combine"), (-16, -1, 1, 16))


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
    return sheet.header["config"]["max_splits"] > 1 and nudge(sheet, "split", ("copy_kv",), (-1, 1))


@kind(1, 6)
def wrong_kv_head(sheet: Sheet) -> bool:
    return nudge(sheet, "kv_head", ("copy_kv",), (-1, 1))


@kind(8, 12)
def wrong_norm(sheet: Sheet) -> bool:
    return nudge(sheet, "norm", ("embed_norm", "add_norm"), (-1, 1))


@kind(8, 9)
def tile_beyond_vocab(sheet: Sheet) -> bool:
    return nudge(sheet, "row", ("head",), (-16, 1, 8, 16, 4096))


@kind(8, 9)
def misplaced_copy(sheet: Sheet) -> bool:
    return nudge(sheet, "offset", ("copy_tape",), (-1, 1, 2))


@kind(8)
def tile_beyond_tape(sheet: Sheet) -> bool:
    return nudge(sheet, "offset", ("copy_tape",), (100_000,))


@kind(9)
def other_tile(sheet: Sheet) -> bool:
    first, second = sheet.any("copy_tape"), sheet.any("copy_tape")
    if not first or not second:
        return False
    first[2][1] = second[2][1]
    return True


@kind(1, 8, 12)
def wrong_bias(sheet: Sheet) -> bool:
    biased = [(k, i) for k, i in sheet.find("publish") if sheet.constants(sheet.lanes[k][i])["biased"]]
    if not biased:
        return False
    key, place = sheet.rng.choice(biased)
    sheet.lanes[key][place][3] += sheet.rng.choice([-16, -1, 1, 16, 100_000])
    return True


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
