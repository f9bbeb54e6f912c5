"""Tasks and places in words, for witnesses."""

from __future__ import annotations

from validator.columns import LANE_NAMES, SECTION_NAMES, Columns


def task(columns: Columns, index: int, token: str = "") -> str:
    """One task: op, arguments, SM, lane, place in its lane, layer if its arguments tell, and token."""
    variant = columns.program.variants[int(columns.opcode[index])]
    names = variant.spec.fields
    values = columns.words[index, 1 : 1 + len(names)].tolist()
    shown = [f"{k}={v}" for k, v in zip(names, values, strict=True)]
    shown += [f"{k}={v}" for k, v in variant.constants.items()]
    where = f"SM {columns.sm[index]} {LANE_NAMES[columns.lane[index]]}"
    section = int(columns.section[index])
    place = int(columns.index[index]) - section * int(columns.body_length[columns.sm[index], columns.lane[index]])
    text = f"{where} {SECTION_NAMES[section]}[{place}] {variant.op}({', '.join(shown)})"
    return text + _layer(columns, dict(zip(names, values, strict=True))) + (f" of token {token}" if token else "")


def _layer(columns: Columns, args: dict[str, int]) -> str:
    phase, layers = args.get("phase"), columns.config["layers"]
    if phase is None or not 0 <= phase < layers:
        return ""
    return f", layer {phase}"


def mailbox(columns: Columns, packet: int) -> str:
    """The mailbox that a packet lies in, with its place there."""
    for buffer in columns.program.buffers:
        if buffer.space == "packets" and buffer.offset <= packet < buffer.end:
            return f"{buffer.name}[{packet - buffer.offset}]"
    return f"packet {packet}"


def packets(columns: Columns, start: int, length: int) -> str:
    """A range of packets by mailbox, with its bytes."""
    return (
        f"{mailbox(columns, start)}, packets [{start}, {start + length}) = bytes [{start * 8}, {(start + length) * 8})"
    )
