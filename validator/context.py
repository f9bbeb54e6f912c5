"""What the rules share: the columns and everything derived from them, computed once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validator.clocks import Activity
from validator.columns import BODY, Bools, Columns
from validator.footprints import Footprints
from validator.handoffs import Handoffs, Nodes, body_only
from validator.matching import Matching
from validator.progress import Order


@dataclass(frozen=True, eq=False)
class Graph:
    """The hand-offs of a Program whose FIFOs match."""

    columns: Columns
    accesses: Footprints
    matching: Matching
    hands: Handoffs
    nodes: Nodes

    def always(self) -> Activity:
        """Every reader and writer in both tokens."""
        return Activity(
            np.ones((2, len(self.hands.reader_task)), bool), np.ones((2, len(self.hands.writer_task)), bool)
        )

    def at(self, first: int, second: int) -> Activity:
        """Those that are active where the two tokens have these split counts; the heads may or may not run."""
        patterns, hands = self.hands.patterns, self.hands
        counts = [first - 1, second - 1]
        readers = patterns[hands.group_pattern[hands.reader_group]][:, counts].T
        return Activity(readers, patterns[hands.writer_pattern][:, counts].T)

    def certain_joins(self) -> Bools:
        """Groups that are read, and produced, in every token at every position: [2, groups]."""
        hands = self.hands
        sure = body_only(self.columns, hands) & (hands.group_pattern == 0)
        sure &= ~hands.group_previous & (hands.group_section == BODY)
        return np.stack([sure, sure])

    def joins_at(self, first: int, second: int) -> Bools:
        """Groups that are read by all their readers at these split counts, whether or not heads run."""
        hands = self.hands
        usable = ~hands.group_previous & (hands.group_section == BODY)
        usable[hands.links[self.columns.section[hands.writer_task[hands.links[:, 1]]] != BODY, 0]] = False
        active = hands.patterns[hands.group_pattern][:, [first - 1, second - 1]].T
        return np.asarray(active & usable, bool)

    def order_at(self, readers: Bools, writers: Bools) -> Order:
        """Levels with only these readers and writers."""
        from validator.progress import order

        return order(self.hands, self.nodes, readers, writers)
