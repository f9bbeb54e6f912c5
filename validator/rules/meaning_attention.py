"""Rule 12: attention: grouped queries, splits, merge, and the end of a token."""

from __future__ import annotations

import numpy as np

from schedule_ir.ops.attention import PER_HEAD, PROJECTION
from validator import describe
from validator.columns import HEAD, Bools, Columns, Ints
from validator.model import LayerLike
from validator.report import Violation
from validator.rules.meaning_layers import Flow


def check(flow: Flow) -> list[Violation]:
    """Theorem: for every layer, query head and split count, attention over all cached rows of the head's K/V group is
    computed once from that layer's q, k and v, merged once, and published where the o projection gathers it.
    """
    return [*_attends(flow), *_combines(flow), *_tokens(flow.columns)]


def _bad(columns: Columns, tasks: Ints, wrong: Bools, message: str) -> list[Violation]:
    at = np.nonzero(wrong)[0]
    return [Violation(12, message, describe.task(columns, int(tasks[at[0]])))] if len(at) else []


def _layers(flow: Flow) -> tuple[Ints, Ints, Ints, Ints]:
    """Per layer: first packet and phase of q/k/v, first packet and phase of the attention output."""
    qkv = np.array([(use.base, use.phase) for use in flow.qkv], np.int64)
    out = np.array([(use.only.arguments["src"], use.only.arguments["phase"]) for use in flow.attention], np.int64)
    return qkv[:, 0], qkv[:, 1], out[:, 0], out[:, 1]


def _attends(flow: Flow) -> list[Violation]:
    columns, model = flow.columns, flow.model
    tasks = columns.of("attend")
    qkv, phase, out, out_phase = _layers(flow)
    group, d = model.heads // model.kv_heads, model.head_dim
    layer, kv = np.divmod(columns.field("kv_head", tasks), model.kv_heads)
    queries = columns.constant("queries", tasks)
    head, rest = np.divmod(columns.field("q_src", tasks) - qkv[layer], d)
    mine = (rest == 0) & (head >= kv * group) & (head + queries <= (kv + 1) * group)
    k_row, v_row = qkv[layer] + (model.heads + kv) * d, qkv[layer] + (model.heads + model.kv_heads + kv) * d
    problems = _bad(columns, tasks, ~mine, "an attend's queries are not query heads of its K/V group")
    problems += _bad(
        columns, tasks, columns.field("k_src", tasks) != k_row, "an attend takes its new key from elsewhere"
    )
    problems += _bad(
        columns, tasks, columns.field("v_src", tasks) != v_row, "an attend takes its new value from elsewhere"
    )
    tag = columns.field("phase", tasks)
    problems += _bad(
        columns, tasks, (tag != phase[layer]) | (tag != out_phase[layer]), "an attend works at another phase"
    )
    place = columns.field("out_dst", tasks) != out[layer] + head * d
    problems += _bad(columns, tasks, place, "an attend publishes where the o projection does not gather it")
    problems = problems or _variants(flow, tasks, layer)
    return problems or [*_covers(flow, tasks, layer, head, queries), *_partials(flow, tasks, layer, head)]


def _variants(flow: Flow, tasks: Ints, layer: Ints) -> list[Violation]:
    """Theorem: window, rotation and q/k norm of an attend are its layer's; a window of max_seq or more is none."""
    columns, layers, max_seq = flow.columns, flow.model.layers, flow.columns.config["max_seq"]
    windows = np.array([x.window if 0 < x.window < max_seq else 0 for x in layers], np.int64)
    ropes = np.array([0 if x.rope is None else x.rope + 1 for x in layers], np.int64)
    problems = []
    for name, expected in (("window", windows), ("rope", ropes)):
        wrong = columns.constant(name, tasks) != expected[layer]
        problems += _bad(columns, tasks, wrong, f"an attend has another {name} than its layer")
    return problems or _norms(flow, tasks, layer)


def _norms(flow: Flow, tasks: Ints, layer: Ints) -> list[Violation]:
    """Theorem: q and k are normed as in the layer, with the layer's weights, from the layer's q and k."""
    columns = flow.columns
    wanted = [_wanted_norm(flow, x) for x in flow.model.layers]
    scope, offset = (np.array(values, np.int64) for values in zip(*wanted, strict=True))
    found = columns.constant("qk_norm", tasks)
    problems = _bad(columns, tasks, found != scope[layer], "an attend norms q and k otherwise than its layer")
    normed = found != 0
    weights = normed & (columns.field("norm", tasks) != offset[layer])
    problems += _bad(columns, tasks, weights, "an attend norms q and k with other weights than its layer's")
    base = np.array([use.base for use in flow.qkv], np.int64)
    source = normed & (columns.field("qkv", tasks) != base[layer])
    return problems + _bad(columns, tasks, source, "an attend takes the squares of q and k from elsewhere")


def _wanted_norm(flow: Flow, layer: LayerLike) -> tuple[int, int]:
    """(scope, place of the weights: q's, then k's); place -1 where the Program does not hold them."""
    if layer.q_norm is None or layer.k_norm is None:
        return 0, 0
    d = flow.model.head_dim
    names, rows = (layer.q_norm.name, layer.k_norm.name), (layer.q_norm.shape[0], layer.k_norm.shape[0])
    scope = PER_HEAD if rows == (d, d) else PROJECTION
    if scope == PROJECTION and rows != (flow.model.heads * d, flow.model.kv_heads * d):
        return -1, -1
    biases = flow.columns.program.biases
    places = [v.offset for v in biases if (v.tensors, v.rows, v.interleaved) == (names, rows, False)]
    return scope, places[0] if places else -1


def _covers(flow: Flow, tasks: Ints, layer: Ints, head: Ints, queries: Ints) -> list[Violation]:
    """Theorem: every (layer, query head, split) has exactly one attend."""
    columns, splits = flow.columns, flow.columns.config["max_splits"]
    times = np.zeros((len(flow.qkv), flow.model.heads + 1, splits), np.int64)
    split = columns.field("split", tasks)
    np.add.at(times, (layer, head, split), 1)
    np.add.at(times, (layer, head + queries, split), -1)
    bad = np.argwhere(np.cumsum(times, 1)[:, :-1] != 1)
    if not len(bad):
        return []
    at = tuple(int(x) for x in bad[0])
    return [
        Violation(12, f"layer {at[0]}, query head {at[1]}, split {at[2]} is attended {np.cumsum(times, 1)[at]} times")
    ]


def _partials(flow: Flow, tasks: Ints, layer: Ints, head: Ints) -> list[Violation]:
    """Theorem: head h of a layer leaves its partial results where the merge of head h reads them."""
    columns, stride = flow.columns, flow.columns.config["partial_stride"]
    if columns.config["max_splits"] == 1:
        return []
    base = columns.field("part_dst", tasks) - head * stride
    first = np.full(len(flow.qkv), -1, np.int64)
    first[layer] = base
    flow.partial = first
    return _bad(columns, tasks, base != first[layer], "attends of a layer leave partial results at different places")


def _combines(flow: Flow) -> list[Violation]:
    """Theorem: where there can be several splits every (layer, query head) has one combine, of its own partials."""
    columns, model = flow.columns, flow.model
    tasks = columns.of("combine")
    _, phase, out, _ = _layers(flow)
    if columns.config["max_splits"] == 1 or flow.partial is None:
        return []
    of_phase = np.full(columns.config["phases"], -1, np.int64)
    of_phase[phase] = np.arange(len(phase))
    layer = of_phase[columns.field("phase", tasks)]
    problems = _bad(columns, tasks, layer < 0, "a combine works at a phase that no layer has")
    if problems:
        return problems
    head, rest = np.divmod(columns.field("out_dst", tasks) - out[layer], model.head_dim)
    mine = (rest == 0) & (head >= 0) & (head < model.heads)
    problems = _bad(columns, tasks, ~mine, "a combine publishes where the o projection does not gather it")
    source = columns.field("part_src", tasks) != flow.partial[layer] + head * columns.config["partial_stride"]
    problems += _bad(columns, tasks, source, "a combine merges the partial results of another head")
    if problems:
        return problems
    times = np.bincount(layer * model.heads + head, minlength=len(phase) * model.heads)
    bad = np.nonzero(times != 1)[0]
    where = [divmod(int(b), model.heads) for b in bad[:1]]
    return [Violation(12, f"layer {a}, query head {b} is merged {times[bad[0]]} times") for a, b in where]


def _tokens(columns: Columns) -> list[Violation]:
    """Theorem: in the head section every SM publishes its best after all its logits, once, and every SM makes the same
    choice from all of them, last.
    """
    problems = []
    for op, lane in (("publish_best", 2), ("sample", 1)):
        tasks = columns.of(op)
        count = np.bincount(columns.sm[tasks], minlength=columns.sms)
        if (count != 1).any():
            sm = int(np.nonzero(count != 1)[0][0])
            return [Violation(12, f"SM {sm} has {count[sm]} {op} tasks, not one")]
        last = columns.index[tasks] == columns.length[columns.sm[tasks], lane] - 1
        wrong = ~last | (columns.section[tasks] != HEAD)
        problems += _bad(columns, tasks, wrong, f"{op} is not the last task of its lane's head section")
    return problems or _choice(columns)


def _choice(columns: Columns) -> list[Violation]:
    """Theorem: SM s publishes at place s of the packets that every sample reads."""
    best, samples = columns.of("publish_best"), columns.of("sample")
    source, phase = columns.field("src", samples), columns.field("phase", samples)
    problems = _bad(columns, samples, (source != source[0]) | (phase != phase[0]), "SMs sample from different packets")
    place = (columns.field("dst", best) != source[0] + 2 * columns.sm[best]) | (
        columns.field("phase", best) != phase[0]
    )
    return problems + _bad(columns, best, place, "an SM publishes its best where no sample reads it")
