"""A schedule as text for a person: what each SM does, where the data lies, who waits for whom, what it should take."""

from __future__ import annotations

from amk.cost import load, plan_of
from amk.cost.plan import Plan
from amk.cost.predict import predict_plan
from amk.errors import UsageError
from amk.schedule_lanes import lane_lines
from schedule_ir.layout import ATOM_BYTES
from schedule_ir.op import Lane
from schedule_ir.program import Program, Space

Rows = list[list[str]]


def describe(program: Program, sm: int | None = None, lane: Lane | str | None = None) -> str:
    """The overview of a schedule; with `sm` also that SM's lanes, task by task, or only its `lane`.

    Raises UsageError for an SM or a lane that the schedule does not have.
    """
    check_choice(program, sm, lane)
    last = plan_of(program, program.config["max_seq"] - 1)
    parts = [
        _head(program),
        ["Shared memory of an SM", *_shared(program)],
        [
            "Mailboxes (packets of 8 bytes) and their hand-offs, per token at the last position",
            *_mailboxes(program, last),
        ],
        ["Weights", *_weights(program)],
        ["Op variants", *_variants(program)],
        ["SMs", *_balance(program)],
        ["Predicted", *_predicted(program, last)],
    ]
    if sm is not None:
        chosen = list(Lane) if lane is None else [Lane(lane)]
        parts += [[f"SM {sm}, {each.value} lane", *lane_lines(program, sm, each)] for each in chosen]
    return "\n\n".join("\n".join(part) for part in parts)


def check_choice(program: Program, sm: int | None, lane: Lane | str | None) -> None:
    """Raise UsageError unless the SM and lane exist."""
    if sm is not None and not 0 <= sm < program.sms:
        raise UsageError(f"SM {sm}: this schedule has SMs 0 to {program.sms - 1}")
    if lane is not None and lane not in [each.value for each in Lane]:
        raise UsageError(f"lane {lane!r}: there are {', '.join(each.value for each in Lane)}")


def columns(rows: Rows) -> list[str]:
    """Rows as aligned lines: numbers to the right, everything else to the left."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(_align, row, widths)).rstrip() for row in rows]


def _align(cell: str, width: int) -> str:
    return cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width)


def _head(program: Program) -> list[str]:
    target, c = program.target, program.config
    heads = f"{c['heads']} heads, {c['kv_heads']} K/V heads of {c['head_dim']}"
    sizes = f"hidden {c['hidden']}, intermediate {c['intermediate']}, {heads}, vocabulary {c['vocab']}"
    tape = sum(buffer.size for buffer in program.buffers if buffer.space is Space.TAPE) * ATOM_BYTES
    kv = sum(buffer.size * buffer.element_bytes for buffer in program.buffers if buffer.space is Space.KV)
    where = f"{target.name} ({target.arch}, {target.path} code path)"
    cache = f"{kv / 1e9:.3f} GB of K/V ({program.kv_dtype}) for {c['max_seq']} positions"
    return [
        f"{where}: {program.sms} of {target.sms} SMs, {target.bandwidth / 1e12:.2f} TB/s",
        f"{c['layers']} layers, {sizes}",
        f"{tape / 1e9:.3f} GB of weight tapes, {cache}",
        "Knobs: " + ", ".join(f"{name} {value}" for name, value in program.knobs.items()),
    ]


def _shared(program: Program) -> list[str]:
    c = program.config
    notes = {
        "ring": f"{c['ring_stages']} slots of {c['slot_bytes']}; {c['in_flight']} copies in flight, "
        f"{c['in_flight_low']} from {c['stocked']} full slots on",
        "reduce": f"{c['reduce_slots']} slots",
        "accumulators": f"{c['accumulators']}, for units that wait for their next piece",
    }
    rows = [["offset", "bytes", "region", ""]]
    for buffer in program.buffers:
        if buffer.space is Space.SHARED:
            name = buffer.name.removeprefix("shared.")
            rows.append([str(buffer.offset), str(buffer.size), name, notes.get(name, "")])
    rows.append([str(c["shared_bytes"]), "0", f"of {program.target.smem_bytes}", ""])
    return columns(rows)


def _mailboxes(program: Program, plan: Plan) -> list[str]:
    rows = [["offset", "packets", "name", "written by", "waited for by"]]
    for buffer in program.buffers:
        if buffer.space is Space.PACKETS:
            sides = [_side(plan, buffer.name, write) for write in (True, False)]
            rows.append([str(buffer.offset), str(buffer.size), buffer.name, *sides])
    return columns(rows)


def _side(plan: Plan, mailbox: str, write: bool) -> str:
    """Who writes to, or polls, a mailbox: tasks, SMs and packets."""
    parts = [
        f"{op} ({t.tasks} tasks on {len(t.sms)} SMs, {t.packets} packets)"
        for (name, op, writes), t in plan.traffic.items()
        if name == mailbox and writes == write
    ]
    return ", ".join(parts) or "-"


def _weights(program: Program) -> list[str]:
    """One row per kind of matrix: layers.3.qkv and layers.4.qkv are of a kind."""
    groups: dict[str, list[int]] = {}
    for index, tiles in enumerate(program.tiles):
        kind = ".".join(part for part in tiles.name.split(".") if part != "layers" and not part.isdigit())
        groups.setdefault(kind, []).append(index)
    rows = [["matrix", "count", "units", "k-steps", "bytes", "units per SM", "SMs"]]
    for kind, members in groups.items():
        tiles = program.tiles[members[0]]
        per_sm = [tiles.sms.count(sm) for sm in set(tiles.sms)]
        size = len(tiles.sms) * tiles.atoms * ATOM_BYTES
        spread = f"{min(per_sm)}" if min(per_sm) == max(per_sm) else f"{min(per_sm)} to {max(per_sm)}"
        counts = [str(len(members)), str(len(tiles.sms)), str(tiles.ksteps), str(size)]
        rows.append([kind, *counts, spread, str(len(per_sm))])
    return columns(rows)


def _variants(program: Program) -> list[str]:
    counts = [0] * len(program.variants)
    for *_, task in program.tasks():
        counts[task.opcode] += 1
    rows = [["opcode", "lane", "tasks", "op", "constants"]]
    for opcode, variant in enumerate(program.variants):
        constants = ", ".join(f"{name} {value}" for name, value in variant.constants.items())
        rows.append([str(opcode), variant.spec.lane.value, str(counts[opcode]), variant.op, constants])
    return columns(rows)


def _balance(program: Program) -> list[str]:
    """Tape bytes and tasks of the SMs: the least, the mean, the most, and which SM has it."""
    tapes = [program.buffer(f"tape.{sm}").size * ATOM_BYTES for sm in range(program.sms)]
    rows = [["", "least", "mean", "most", "on SM", "most / mean"], _spread("tape bytes", tapes)]
    for lane in Lane:
        tasks = [0] * program.sms
        for (sm, where, _), listed in program.lanes.items():
            tasks[sm] += len(listed) if where is lane else 0
        rows.append(_spread(f"{lane.value} tasks", tasks))
    return columns(rows)


def _spread(name: str, values: list[int]) -> list[str]:
    mean, most = sum(values) / len(values), max(values)
    ratio = f"{most / mean:.3f}" if mean else "-"
    return [name, str(min(values)), f"{mean:.0f}", str(most), str(values.index(most)), ratio]


def _predicted(program: Program, last: Plan) -> list[str]:
    """At the first and at the last position."""
    bandwidth, constants = program.target.bandwidth, load()
    first = predict_plan(plan_of(program, 0), 0, bandwidth, constants)
    end = predict_plan(last, program.config["max_seq"] - 1, bandwidth, constants)
    return [f"  {line}" for prediction in (first, end) for line in prediction.text().splitlines()]
