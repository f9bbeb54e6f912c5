"""Rule 4: accesses to the same packet, one of them a write, are ordered by happens-before."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from schedule_ir.expr import NUMPY, evaluate
from schedule_ir.layout import split_count
from validator import describe
from validator.clocks import Activity, Clocks, clocks, writer_rows
from validator.columns import COMPUTE, Bools, Columns, Ints
from validator.context import Graph
from validator.generations import Pairs, reader_pairs, writer_pairs, written_cells
from validator.progress import Order
from validator.report import Violation

MOST_SHOWN = 4
AT_ONCE = 250_000
MOST_POSITIONS = 1 << 22


def check(graph: Graph, order: Order) -> list[Violation]:
    """Theorem: before a packet is overwritten, the write before and every read of it have happened, within a token,
    from a token to the next, and from a token to every later one; for every position and every choice of heads.

    Proof: first with only the hand-offs that happen in every token, which covers all positions at once; where that
    does not suffice, for each pair of split counts that consecutive positions have. Tokens further apart are ordered
    because every SM at the end of a body knows that the token before is over everywhere (`_frontier`).
    """
    unread = _unread(graph)
    problems = unread or _check_with(graph, order, graph.certain_joins(), graph.always(), "")
    if unread or not problems:
        return problems
    for first, second in _reachable(graph.columns):
        where = f" at split counts {first} and then {second}"
        problems = _check_with(graph, order, graph.joins_at(first, second), graph.at(first, second), where)
        if problems:
            return problems
    return []


def _unread(graph: Graph) -> list[Violation]:
    """Theorem: where any value of a packet is read, every value of it is: a store that nobody waits for could land
    after the next one (stores to different packets are relaxed, so a later packet proves nothing of it).
    """
    hands = graph.hands
    read = np.zeros(hands.cells, bool)
    read[hands.group_cell[:, 1]] = True
    alive = np.isin(hands.cell_segment, hands.cell_segment[read])
    bad = np.nonzero(alive & ~read & written_cells(hands, graph.always())[0])[0]
    if not len(bad):
        return []
    writer = int(hands.writer_cell[np.nonzero(hands.writer_cell[:, 1] == bad[0])[0][0], 0])
    where = describe.mailbox(graph.columns, int(hands.cell_start[bad[0]]))
    text = describe.task(graph.columns, int(hands.writer_task[writer]))
    message = f"{where}, phase {hands.cell_phase[bad[0]]}, is written but never read, while its other values are"
    return [Violation(4, message, f"{text}\n  nothing proves that it has landed before the next value of the packet")]


def _reachable(columns: Columns) -> list[tuple[int, int]]:
    """Split counts of consecutive positions; all pairs where there are too many positions to look at."""
    counts = columns.config["max_splits"]
    if columns.config["max_seq"] > MOST_POSITIONS:
        return [(a, b) for a in range(1, counts + 1) for b in range(1, counts + 1)]
    at = evaluate(split_count(columns.config), {"pos": np.arange(columns.config["max_seq"] + 1)}, NUMPY)
    return sorted({(int(a), int(b)) for a, b in pairwise(at.tolist())})


def _check_with(graph: Graph, order: Order, joins: Bools, activity: Activity, where: str) -> list[Violation]:
    known = clocks(graph.columns, graph.hands, graph.nodes, graph.matching, order, joins, activity)
    view = _View(graph, known, _rows(graph, known))
    pairs, lost = reader_pairs(graph.hands, activity)
    problems = [_overwritten(graph, int(row)) for row in lost[:1]]
    problems += _unordered_reads(view, pairs, activity, where)
    problems += _unordered_writes(view, writer_pairs(graph.hands, activity), where)
    return problems or _frontier(view, where)


def _rows(graph: Graph, known: Clocks) -> Ints:
    return writer_rows(graph.columns, graph.hands, graph.nodes, graph.matching, known.row_of_node, known.first_row)


@dataclass(frozen=True, eq=False)
class _View:
    """Clocks as writers see them."""

    graph: Graph
    clocks: Clocks
    rows: Ints

    def known(self, writer: Ints, token: Ints, component: Ints) -> Ints:
        """Tasks of a lane (sm * 3 + lane) that are done when a writer of a token writes."""
        columns, matching = self.graph.columns, self.graph.matching
        task = self.graph.hands.writer_task[writer]
        others = self.clocks.clock[token, self.rows[writer], component].astype(np.int64)
        own = np.stack([matching.known_stream[task], matching.known_compute[task], columns.index[task] + 1], 1)
        lane = component % 3
        mine = own[np.arange(len(task)), lane]
        mine = np.where(mine > 0, mine + token * columns.length[columns.sm[task], lane], 0)
        return np.where(component // 3 == columns.sm[task], np.maximum(mine, others), others)


def _unordered_reads(view: _View, pairs: Pairs, activity: Activity, where: str) -> list[Violation]:
    """Theorem: every reader of a value happens before every writer of the next value."""
    hands = view.graph.hands
    readers = np.nonzero(activity.readers[0])[0]
    readers = readers[np.argsort(hands.reader_group[readers], kind="stable")]
    weakest = _weakest(view, pairs)
    begin = np.searchsorted(hands.reader_group[readers], weakest.before)
    end = np.searchsorted(hands.reader_group[readers], weakest.before, side="right")
    problems: list[Violation] = []
    for part in _parts(end - begin):
        chosen = Pairs(weakest.before[part], weakest.after[part], weakest.token[part])
        problems += _late_reads(view, chosen, readers, begin[part], end[part], where)
        if problems:
            break
    return problems


def _parts(sizes: Ints) -> list[slice]:
    """Slices of pairs with about AT_ONCE readers in all, so that memory stays small."""
    cuts = np.searchsorted(np.cumsum(sizes), np.arange(AT_ONCE, int(sizes.sum()) + 1, AT_ONCE)).tolist()
    edges = sorted({0, *cuts, len(sizes)})
    return [slice(a, b) for a, b in pairwise(edges)]


def _late_reads(view: _View, pairs: Pairs, readers: Ints, begin: Ints, end: Ints, where: str) -> list[Violation]:
    """Of these pairs, those of which a reader (readers[begin:end]) is not known to be done by the writer."""
    hands, columns = view.graph.hands, view.graph.columns
    count = end - begin
    pair = np.repeat(np.arange(len(begin)), count)
    reader = readers[np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count) + begin[pair]]
    task = hands.reader_task[reader]
    component = columns.sm[task] * 3 + columns.lane[task]
    late = view.known(pairs.after[pair], pairs.token[pair], component) <= columns.index[task]
    return [
        _race(view.graph, int(task[i]), "reads", int(pairs.after[pair[i]]), int(pairs.token[pair[i]]), where)
        for i in _sample(np.nonzero(late)[0])
    ]


def _weakest(view: _View, pairs: Pairs) -> Pairs:
    """Of the pairs of a group with writers of the same knowledge of other SMs, the one that knows least of its own."""
    task = view.graph.hands.writer_task[pairs.after]
    own = view.graph.matching.known_compute[task]
    key = (pairs.before * 2 + pairs.token) * len(view.clocks.clock[0]) + view.rows[pairs.after]
    ranked = np.lexsort((own, key))
    first = np.ones(len(ranked), bool)
    first[1:] = key[ranked][1:] != key[ranked][:-1]
    chosen = ranked[first]
    return Pairs(pairs.before[chosen], pairs.after[chosen], pairs.token[chosen])


def _unordered_writes(view: _View, pairs: Pairs, where: str) -> list[Violation]:
    """Theorem: every writer of a value happens before every writer of the next value."""
    hands, columns = view.graph.hands, view.graph.columns
    task = hands.writer_task[pairs.before]
    component = columns.sm[task] * 3 + columns.lane[task]
    late = view.known(pairs.after, pairs.token, component) <= columns.index[task]
    return [
        _race(view.graph, int(task[i]), "writes", int(pairs.after[i]), int(pairs.token[i]), where)
        for i in _sample(np.nonzero(late)[0])
    ]


def _sample(bad: Ints) -> list[int]:
    return [int(i) for i in bad[:MOST_SHOWN]]


def _frontier(view: _View, where: str) -> list[Violation]:
    """Theorem: at the end of a body every SM knows that the token before is over: all its packet accesses are done."""
    columns, hands = view.graph.columns, view.graph.hands
    needed = np.zeros(columns.sms * 3, np.int64)
    last = np.full(columns.sms * 3, -1, np.int64)
    for task in (hands.reader_task, hands.writer_task):
        component = columns.sm[task] * 3 + columns.lane[task]
        np.maximum.at(needed, component, columns.index[task] + 1)
        np.maximum.at(last, component, task)
    have = view.clocks.clock[1, view.clocks.last_row].astype(np.int64)
    own = np.arange(columns.sms)
    have[own, own * 3 + COMPUTE] = columns.length[own, COMPUTE]
    bad = np.argwhere(have < needed)
    if not len(bad):
        return []
    sm, component = bad[0].tolist()
    lines = [
        describe.task(columns, int(last[component]), "e"),
        f"  is not known to be done on SM {sm} at the end of the body of token e + 1",
        f"  missing: a hand-off that carries it from SM {component // 3} to SM {sm}{where}",
    ]
    return [Violation(4, "tokens two apart are not ordered", "\n".join(lines))]


def _race(graph: Graph, task: int, verb: str, writer: int, token: int, where: str) -> Violation:
    columns, hands = graph.columns, graph.hands
    after = int(hands.writer_task[writer])
    cells = hands.writer_cell[hands.writer_cell[:, 0] == writer, 1]
    start = int(hands.cell_start[cells[0]])
    length = int(hands.cell_length[cells].sum())
    what = describe.packets(columns, start, length)
    later = "e" if token == 0 else "e + 1"
    lines = [
        f"{describe.task(columns, task, 'e')}", f"  {verb} {what}",
        f"{describe.task(columns, after, later)}", "  overwrites it",
        f"  missing: an order from the first to the second{where}",
    ]  # fmt: skip
    kind = "read" if verb == "reads" else "write"
    return Violation(
        4, f"a {kind} of {describe.mailbox(columns, start)} is not ordered before the next write", "\n".join(lines)
    )


def _overwritten(graph: Graph, row: int) -> Violation:
    group, cell = (int(x) for x in graph.hands.group_cell[row])
    task = int(graph.hands.reader_task[np.nonzero(graph.hands.reader_group == group)[0][0]])
    where = describe.mailbox(graph.columns, int(graph.hands.cell_start[cell]))
    text = describe.task(graph.columns, task, "e")
    return Violation(4, f"{where} of token e - 1 is overwritten in token e - 1, before it is read in token e", text)
