"""Units that are multiplied in pieces of K: which multiplication hands its sums to which, through an accumulator.

`gemv_park` leaves the sums of a unit in an accumulator of its SM, another one or a `gemv_resume` goes on from there.
Only the thread that wrote a word of an accumulator reads it, so program order of the compute lane is all the order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validator.columns import Bools, Columns, Ints

PARKING = ("gemv_park", "gemv_resume")
MULTIPLIES = ("gemv", *PARKING)
"""Ops that drain a tape copy."""


@dataclass(frozen=True, eq=False)
class Links:
    """Multiplications that use accumulators, by SM, section and accumulator, each group in program order.

    `opens`: takes nothing from its accumulator; `closes`: leaves nothing in it; `first`, `last`: of its group.
    """

    task: Ints
    opens: Bools
    closes: Bools
    first: Bools
    last: Bools


def links(columns: Columns) -> Links:
    """The links of all chains."""
    task = columns.of(*PARKING)
    place = columns.sm[task] * 2 + columns.section[task]
    key = place * max(1, columns.config["accumulators"]) + columns.field("accumulator", task)
    order = np.argsort(key, kind="stable")
    task, key = task[order], key[order]
    first, last = np.ones((2, len(task)), bool)
    first[1:] = key[1:] != key[:-1]
    last[:-1] = first[1:]
    resumes = np.isin(task, columns.of("gemv_resume"))
    opens = ~resumes & (columns.constant("resume", task) == 0)
    return Links(task, opens, resumes, first, last)


@dataclass(frozen=True, eq=False)
class Chains:
    """Multiplications whose products are summed, chain after chain: links of chain c are task[begin[c]:begin[c + 1]].

    The last link of a chain hands its sums to a reduction slot. A `gemv` is a chain of its own.
    """

    task: Ints
    begin: Ints


def chains(columns: Columns) -> Chains:
    """The chains of a Program whose links fit (rule 9)."""
    found, alone = links(columns), columns.of("gemv")
    task = np.concatenate([found.task, alone])
    opens = np.concatenate([found.opens, np.ones(len(alone), bool)])
    return Chains(task, np.append(np.nonzero(opens)[0], len(task)))
