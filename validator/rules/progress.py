"""Rule 2: every token finishes, whatever the position and whether or not its logits are needed."""

from __future__ import annotations

import numpy as np

from validator import describe
from validator.columns import Ints
from validator.context import Graph
from validator.progress import Order, cycle
from validator.report import Violation


def check(graph: Graph) -> tuple[Order, list[Violation]]:
    """Theorem: lane order, packet waits, ring and reduction waits together are acyclic in the endless unrolling of
    tokens, for every position and every choice of heads.

    Proof: edges never lead to an earlier token, so a cycle lies within one token. Ring and reduction slots never close
    one: they are FIFOs in the same order on both sides (`matching`), the epilogue lane waits for nothing else, and
    the stream lane only for packets of the token before (`_lane_problems`). That a compute lane may acquire slots of a
    unit before it has all packets of the task before it, which drains none, adds no edge that could: what fills those
    slots waits for earlier tasks alone, or for the unit's own loads. What is left are the nodes of the compute
    lanes and the packets; they are checked with the edges of all split counts at once, and if that has a cycle, for
    each split count. Tokens without a head have a subset of the edges.
    """
    problems = _lane_problems(graph)
    readers, writers = graph.always().readers[0], graph.always().writers[0]
    union = graph.order_at(readers, writers)
    if not (union.level < 0).any() or problems:
        return union, problems
    for count in range(1, graph.hands.patterns.shape[1] + 1):
        active = graph.at(count, count)
        order = graph.order_at(active.readers[0], active.writers[0])
        if (order.level < 0).any():
            return order, [_deadlock(graph, order, count)]
    return union, [Violation(2, "the waits of all split counts together are cyclic, which is not modelled")]


def _lane_problems(graph: Graph) -> list[Violation]:
    """Theorem: only compute lanes wait for packets of the same token."""
    columns, hands = graph.columns, graph.hands
    waiting = (graph.nodes.of_reader < 0) & ~hands.group_previous[hands.reader_group]
    bad = np.nonzero(waiting)[0]
    if not len(bad):
        return []
    text = describe.task(columns, int(hands.reader_task[bad[0]]))
    return [Violation(2, "a lane other than compute waits for packets of its own token: not modelled", text)]


def _deadlock(graph: Graph, order: Order, count: int) -> Violation:
    found = cycle(order, graph.nodes)
    lines = []
    for place, (node, group) in enumerate(found):
        after = found[(place + 1) % len(found)][0]
        lines.append(describe.task(graph.columns, int(graph.nodes.task[node])))
        lines.append("  " + _edge(graph, group, after))
    shown = lines if len(lines) <= 40 else [*lines[:36], f"... {len(found) - 18} more tasks"]
    where = f"at split count {count}" if graph.hands.patterns.shape[1] > 1 else "at every position"
    return Violation(2, f"deadlock: {len(found)} tasks wait for each other {where}", "\n".join(shown))


def _edge(graph: Graph, group: int, node: int) -> str:
    if group < 0:
        return "comes after, in its lane:"
    hands = graph.hands
    begin, end = np.searchsorted(hands.links[:, 0], [group, group + 1])
    makers: Ints = hands.links[begin:end, 1]
    maker = makers[graph.nodes.of_writer[makers] == node]
    what = describe.packets(graph.columns, int(hands.group_start[group]), int(hands.group_length[group]))
    text = f"waits for {what}, phase {hands.group_phase[group]}"
    return text + (
        f"\n  made by {describe.task(graph.columns, int(hands.writer_task[maker[0]]))}, after:" if len(maker) else ""
    )
