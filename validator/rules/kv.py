"""Rule 7: K/V rows: splits cover the cache, the new row is nobody else's, for every position."""

from __future__ import annotations

from schedule_ir.layout import KV_BLOCK
from validator.columns import Columns
from validator.obligations import split_proofs
from validator.report import Obligation, Violation
from validator.windows import window_proofs


def check(columns: Columns) -> tuple[list[Violation], list[Obligation]]:
    """Theorem: for every pos < max_seq the active splits are disjoint, cover [0, pos), or what of it a window shows, in
    whole blocks, and lie in the cache; row pos is in bounds, and the only copy that holds it is the appending split's.
    """
    config = columns.config
    problems = [Violation(7, message) for message in _sizes(columns)]
    if problems:
        return problems, []
    rows = columns.program.buffer("kv").size
    proofs = list(split_proofs(config, rows))
    for window in sorted({v.constants["window"] for v in columns.program.variants if v.op == "copy_kv"} - {0}):
        proofs += window_proofs(config, rows, window)
    for proof in proofs:
        if not proof.ok:
            message = f"{proof.obligation.name}: {proof.obligation.status}"
            problems.append(Violation(7, message, f"counterexample: {proof.counterexample}"))
    return problems, [proof.obligation for proof in proofs]


def _sizes(columns: Columns) -> list[str]:
    """Theorem: the cache has room for max_seq rows, in whole blocks, of every K/V head of every layer."""
    config = columns.config
    found = [buffer for buffer in columns.program.buffers if buffer.name == "kv"]
    if len(found) != 1 or found[0].space != "kv" or found[0].offset != 0:
        return ["there is not exactly one buffer 'kv' at offset 0 of its space; the kernel addresses rows from 0"]
    broken = []
    if config["max_seq_padded"] % KV_BLOCK or config["max_seq_padded"] < config["max_seq"]:
        broken.append(
            f"max_seq_padded = {config['max_seq_padded']} is not max_seq = {config['max_seq']} in whole blocks"
        )
    if config["min_split_rows"] % KV_BLOCK:
        broken.append(f"min_split_rows = {config['min_split_rows']} is not a multiple of {KV_BLOCK}")
    rows = config["layers"] * config["kv_heads"] * config["max_seq_padded"]
    if found[0].size < rows:
        broken.append(
            f"buffer 'kv' has {found[0].size} rows, {rows} are needed (the bytes of a row lie all over its block)"
        )
    row = 2 * config["head_dim_padded"] * config["kv_element_bytes"]
    if found[0].element_bytes != row:
        broken.append(f"a K/V row is {row} bytes, buffer 'kv' says {found[0].element_bytes}")
    return broken
