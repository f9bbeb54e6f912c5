"""Rule 5: what carries the order of K/V rows from the SM that appends them to the SMs whose copy engines read them."""

from __future__ import annotations

import numpy as np

from validator import describe
from validator.columns import BODY, COMPUTE, Columns, Ints
from validator.matching import Matching
from validator.report import Violation
from validator.rules import appends as appended

CARRIERS = (
    "stream -> compute: the ring's full mbarriers (bulk copies complete on them)",
    "compute -> stream: the ring's empty mbarriers, one arrival per compute warp",
    "compute -> epilogue: the reduction slots' mbarriers, one arrival per compute warp",
    "SM -> SM: 64-bit packets, relaxed at gpu scope, read by equality of the tag; reuse of a packet by data dependence",
    "K/V rows, writer: plain stores, fence.proxy.async, block barrier, reduction slot, fence.acq_rel.gpu, packet",
    "K/V rows, reader: poll of the packets, fence.acq_rel.gpu, fence.proxy.async, bulk copy",
)


def check(columns: Columns, matching: Matching) -> list[Violation]:
    """Theorem: every row that a token appends is released at gpu scope by the SM that appended it, after it was
    written, and every bulk copy of K/V rows follows an acquire, in its own lane and token, of every SM's release.
    """
    appends = columns.of("append")
    copies = columns.of("copy_kv")
    return [
        *_released(columns, matching, appends),
        *_acquired(columns, copies),
        *_acquires_all(columns, appends),
        *_in_body(columns),
        *appended.same_block(columns),
    ]


def _in_body(columns: Columns) -> list[Violation]:
    """Theorem: K/V rows are read, appended, acquired and released in the body, so in every token."""
    tasks = columns.of("attend", "append", "copy_kv", "kv_acquire", "kv_release", "combine")
    bad = tasks[columns.section[tasks] != BODY]
    if not len(bad):
        return []
    text = describe.task(columns, int(bad[0]))
    return [Violation(5, "K/V rows are used in a head section, which most prompt tokens skip", text)]


def _released(columns: Columns, matching: Matching, appends: Ints) -> list[Violation]:
    """Theorem: on an SM that appends, one kv_release comes after a reduction slot that its compute lane handed over
    after its last append: the slot's mbarrier carries the rows to the epilogue lane, whose fence releases them.
    """
    last = np.full(columns.sms, -1, np.int64)
    np.maximum.at(last, columns.sm[appends], columns.index[appends])
    releases = columns.of("kv_release")
    count = np.bincount(columns.sm[releases], minlength=columns.sms)
    known = np.zeros(columns.sms, np.int64)
    np.maximum.at(known, columns.sm[releases], matching.known_compute[releases])
    bad = np.nonzero((last >= 0) & ((count != 1) | (known <= last)))[0]
    if not len(bad):
        return []
    sm = int(bad[0])
    task = int(columns.lane_begin[sm, COMPUTE] + last[sm])
    text = describe.task(columns, task)
    if count[sm] != 1:
        return [Violation(5, f"SM {sm} appends K/V rows and has {count[sm]} kv_release tasks instead of one", text)]
    release = int(releases[columns.sm[releases] == sm][0])
    missing = "missing: a unit after the append whose reduction slot the epilogue takes before it releases"
    lines = f"{text}\n  writes row pos; released by\n{describe.task(columns, release)}\n  {missing}"
    return [Violation(5, f"nothing carries the K/V rows appended on SM {sm} to its epilogue lane", lines)]


def _acquired(columns: Columns, copies: Ints) -> list[Violation]:
    """Theorem: a kv_acquire precedes every copy_kv in its lane, in the same section."""
    first = np.full(columns.sms, columns.tasks, np.int64)
    acquires = columns.of("kv_acquire")
    np.minimum.at(first, columns.sm[acquires], columns.index[acquires])
    bad = copies[columns.index[copies] < first[columns.sm[copies]]]
    if not len(bad):
        return []
    text = describe.task(columns, int(bad[0]))
    missing = "missing: kv_acquire before it in this lane (packet poll, gpu fence, proxy fence)"
    return [Violation(5, "a bulk copy reads K/V rows that nothing has acquired", f"{text}\n  {missing}")]


def _acquires_all(columns: Columns, appends: Ints) -> list[Violation]:
    """Theorem: every kv_acquire polls the release packet of every SM that appends."""
    releases, acquires = columns.of("kv_release"), columns.of("kv_acquire")
    relevant = releases[np.isin(columns.sm[releases], columns.sm[appends])]
    if not len(relevant) or not len(acquires):
        return []
    place, phase = columns.field("dst", relevant), columns.field("phase", relevant)
    low, high = columns.field("src", acquires), columns.field("src", acquires) + columns.sms
    covers = (low <= place.min()) & (place.max() < high)
    covers &= (columns.field("phase", acquires) == phase[0]) & bool((phase == phase[0]).all())
    bad = acquires[~covers]
    if not len(bad):
        return []
    text = describe.task(columns, int(bad[0]))
    where = describe.packets(columns, int(place.min()), int(place.max() - place.min()) + 1)
    return [
        Violation(5, "an acquire does not poll the release of every SM that appends", f"{text}\n  missing: {where}")
    ]
