"""A layer of a traced launch, mean of its layers: when tasks have what they wait for, and when they end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from amk.bench.timeline import F64, I64, Timeline
from schedule_ir.codec import LANES
from schedule_ir.op import Lane

LAST_MAILBOX = "down"
"""What a layer hands to the next one."""

LANES_OF_A_LAYER = (LANES.index(Lane.COMPUTE), LANES.index(Lane.EPILOGUE))
"""The stream lane runs layers ahead."""


@dataclass(frozen=True)
class Span:
    """When the first, the one in the middle and the last of some tasks do something. Microseconds."""

    first: float
    middle: float
    last: float


@dataclass(frozen=True)
class LayerRow:
    """A kind of task: how many a layer, and its times since the layer's residual arrived (median of the SMs).

    `ready`: nothing is waited for any more; `end`: done.
    """

    lane: str
    label: str
    tasks: float
    ready: Span
    end: Span


def layer_rows(timeline: Timeline) -> list[LayerRow]:
    """Kinds of tasks, sorted by the end of their last; none where no layer lies between two arrivals of a residual."""
    found: dict[tuple[int, str], list[tuple[F64, F64]]] = defaultdict(list)
    labels = np.array(timeline.records.labels)
    for step in timeline.steps:
        arrivals = _arrivals(timeline, step)
        for events, following in pairwise(arrivals):
            begin, end = _middle(timeline, events), _middle(timeline, following)
            for kind, mine in _kinds(timeline, labels, step, events, begin, end).items():
                ready = timeline.begin[mine] + timeline.waited[mine]
                found[kind].append((ready - begin, timeline.end[mine] - begin))
    layers = max((len(spans) for spans in found.values()), default=0)
    rows = [
        LayerRow(LANES[lane].value, label, sum(len(ready) for ready, _ in spans) / layers,
                 _span([ready for ready, _ in spans]), _span([end for _, end in spans]))
        for (lane, label), spans in found.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row.end.last)


def _arrivals(timeline: Timeline, step: int) -> list[I64]:
    """The compute tasks that take a layer's result, layer by layer."""
    groups: dict[int, list[int]] = defaultdict(list)
    for (key, of_step), events in timeline.common_waits().items():
        if of_step == step and timeline.records.mailbox(key[0]) == LAST_MAILBOX:
            groups[key[2]] += events.tolist()
    return [np.unique(groups[phase]) for phase in sorted(groups)]


def _middle(timeline: Timeline, events: I64) -> float:
    return float(np.median(timeline.begin[events] + timeline.waited[events]))


def _kinds(
    timeline: Timeline, labels: np.typing.NDArray[np.str_], step: int, arrival: I64, begin: float, end: float
) -> dict[tuple[int, str], I64]:
    """The events of a layer by lane and label: `arrival`, and what ends from `begin` to `end` and takes no residual."""
    takes = np.char.endswith(labels, f"<- {LAST_MAILBOX}")[timeline.record]
    inside = (timeline.step == step) & (timeline.end > begin) & (timeline.end <= end) & ~takes
    inside &= np.isin(timeline.lane, LANES_OF_A_LAYER)
    kinds: dict[tuple[int, str], list[int]] = defaultdict(list)
    for event in [*arrival.tolist(), *np.flatnonzero(inside).tolist()]:
        kinds[int(timeline.lane[event]), str(labels[timeline.record[event]])].append(event)
    return {kind: np.array(events, np.int64) for kind, events in kinds.items()}


def _span(times: list[F64]) -> Span:
    """Means over the layers of the least, the median and the largest time."""
    return Span(
        float(np.mean([each.min() for each in times])),
        float(np.mean([np.median(each) for each in times])),
        float(np.mean([each.max() for each in times])),
    )
