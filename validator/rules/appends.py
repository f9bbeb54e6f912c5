"""The new K/V row: every `append` stores, once, what the attend before it left in shared memory (rules 4 and 9)."""

from __future__ import annotations

import numpy as np

from validator import describe
from validator.columns import Bools, Columns, Ints
from validator.report import Violation


def check(columns: Columns) -> list[Violation]:
    """Theorem (rule 9): whichever split is the last active one, row pos of every layer and K/V head is stored once, and
    what is stored is the new row of that K/V head, of this token.
    """
    return [*_times(columns), *_of_last_attend(columns)]


def _times(columns: Columns) -> list[Violation]:
    """Theorem: every (layer, K/V head, split) has one append; it stores where its split is the last active one."""
    config = columns.config
    heads, splits = config["layers"] * config["kv_heads"], config["max_splits"]
    tasks = columns.of("append")
    if heads * splits > columns.tasks:
        return [
            Violation(9, f"{heads} K/V heads of {splits} splits need more tasks than the {columns.tasks} there are")
        ]
    key = columns.field("kv_head", tasks) * splits + columns.field("split", tasks)
    times = np.bincount(key, minlength=heads * splits)
    bad = np.nonzero(times != 1)[0]
    if not len(bad):
        return []
    head, split = divmod(int(bad[0]), splits)
    layer, kv_head = divmod(head, config["kv_heads"])
    text = "\n".join(describe.task(columns, int(t)) for t in tasks[key == bad[0]])
    message = (
        f"K/V row pos of layer {layer}, K/V head {kv_head} is appended {times[bad[0]]} times at split count {split + 1}"
    )
    return [Violation(9, message, text)]


def _of_last_attend(columns: Columns) -> list[Violation]:
    """Theorem: the last attend before an append, in its lane and section, is of the same K/V head, split and window.

    An attend leaves the new row in shared memory, rounded as the cache holds it, where its split is the last active
    one; that is where the append of the same split stores it. Attends of other K/V heads would have overwritten it; no
    other op writes there. Query blocks of a K/V head leave the same row (rule 12: same k, v, norm and rotation).
    """
    appends, attends = columns.of("append"), columns.of("attend")
    if not len(attends):
        return [_stale(columns, int(appends[0]), -1)] if len(appends) else []
    at = np.searchsorted(attends, appends) - 1
    before = attends[np.maximum(at, 0)]
    mine = at >= 0
    for place in (columns.sm, columns.section):
        mine &= place[before] == place[appends]
    same = columns.constant("window", before) == columns.constant("window", appends)
    for name in ("kv_head", "split"):
        same &= columns.field(name, before) == columns.field(name, appends)
    bad = np.nonzero(~(mine & same))[0]
    if not len(bad):
        return []
    return [_stale(columns, int(appends[bad[0]]), int(before[bad[0]]) if mine[bad[0]] else -1)]


def _stale(columns: Columns, append: int, attend: int) -> Violation:
    lines = [describe.task(columns, append)]
    if attend >= 0:
        lines += ["  stores the row that this one left in shared memory:", describe.task(columns, attend)]
    lines.append("  missing: an attend of its K/V head, split and window before it, with no other attend between")
    return Violation(9, "an append does not store the new row of its K/V head", "\n".join(lines))


def same_block(columns: Columns) -> list[Violation]:
    """Theorem (rule 4): the block that row pos lies in is copied only for attends that are done before the append.

    Of a token's copies only those of the last active split hold row pos (rule 7), and each is drained by an attend of
    that (K/V head, split) (rule 6), which all come before the append on its SM: their copies have landed.
    """
    tasks, appends = columns.of("attend"), columns.of("append")
    splits = columns.config["max_splits"]
    key, stored = (columns.field("kv_head", t) * splits + columns.field("split", t) for t in (tasks, appends))
    writer = np.full(1 + max(key.max(initial=-1), stored.max(initial=-1)), -1, np.int64)
    writer[stored] = appends
    mine = writer[key]
    bad = np.nonzero((mine >= 0) & ~_done_before(columns, tasks, mine))[0]
    if not len(bad):
        return []
    reader, append = int(tasks[bad[0]]), int(mine[bad[0]])
    lines = [
        describe.task(columns, reader), "  reads, by bulk copy, the block of 16 rows that holds row pos",
        describe.task(columns, append), "  writes row pos of it by plain stores",
        "  missing: both on one SM, the append after every attend of its K/V head and split",
    ]  # fmt: skip
    return [Violation(4, "a bulk copy of a K/V block races with the append into it", "\n".join(lines))]


def _done_before(columns: Columns, readers: Ints, writers: Ints) -> Bools:
    same = columns.sm[readers] == columns.sm[writers]
    return np.asarray(same & (columns.index[readers] < columns.index[writers]), bool)
