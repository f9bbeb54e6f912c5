"""What the solver proves of the attention splits, for every position and length: once per configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from schedule_ir.layout import KV_BLOCK, kv_block_bytes, split_begin, split_count, split_end
from schedule_ir.registry import REGISTRY
from validator.solver import LONGEST, Facts, Proof, Term, prove, satisfiable, term

USED = (
    "max_splits", "min_split_rows", "max_seq", "max_seq_padded", "layers", "kv_heads", "slot_bytes", "head_dim_padded",
    "kv_element_bytes", "phases", "heads", "partial_stride", "head_dim",
)  # fmt: skip


def split_proofs(config: Mapping[str, int], kv_rows: int) -> tuple[Proof, ...]:
    """All obligations of rule 7, from the rules that the registry declares for copy_kv and append."""
    return _proofs(tuple((name, config[name]) for name in USED), kv_rows)


@lru_cache(maxsize=256)
def _proofs(items: tuple[tuple[str, int], ...], kv_rows: int) -> tuple[Proof, ...]:
    config = dict(items)
    whole = _Space(config, (0, 1, config["max_splits"], config["max_splits"] + 1))
    proofs = [_premises(whole), _count(whole), _begins(whole)]
    for split in range(config["max_splits"]):
        space = _Space(config, (split, split + 1, split + 2))
        proofs += [_disjoint(space, split), _whole(space, split), _copy(space, split, kv_rows)]
    return (*proofs, _append(whole, kv_rows), _alignment(whole))


class _Space:
    """Symbolic position, sequence length and K/V head of a configuration; quotients are compared with `thresholds`."""

    def __init__(self, config: Mapping[str, int], thresholds: tuple[int, ...]) -> None:
        import z3

        self.config = config
        self.splits = config["max_splits"]
        self.facts = Facts(thresholds)
        self.pos, self.length, self.head = (Term(z3.Int(name), self.facts) for name in ("pos", "max_seq", "kv_head"))
        self.count = term(split_count(config), self.facts, pos=self.pos)
        heads = config["layers"] * config["kv_heads"]
        self.given = [self.pos.value >= 0, self.pos.value < self.length.value, self.length.value <= LONGEST]
        self.bounded = [self.length.value <= config["max_seq"], self.head.value >= 0, self.head.value < heads]

    def edges(self, split: int) -> tuple[Any, Any]:
        """Begin and end of a split."""
        rules = (split_begin(self.config, split), split_end(self.config, split))
        begin, end = (term(rule, self.facts, pos=self.pos) for rule in rules)
        return begin, end

    def prove(self, name: str, claim: Any, *, bounded: bool = False) -> Proof:
        """`claim` for every pos < max_seq; `bounded`: of this Program's max_seq and K/V heads."""
        return prove(f"rule 7: {name}", [*self.facts.known, *self.given, *(self.bounded if bounded else [])], claim)

    def access(self, op: str, which: int, split: int) -> _Range:
        """The `which`-th K/V access of an op, for a symbolic K/V head."""
        args: dict[str, Any] = dict.fromkeys(REGISTRY[op].fields, 0)
        args |= {"split": split, "kv_head": self.head}
        constants = {**dict.fromkeys(REGISTRY[op].constants, 1), "window": 0}
        found = [a for a in REGISTRY[op].accesses(args, constants, self.config) if a.space == "kv"][which]
        active = 1 if found.active is None else found.active
        values = [term(rule, self.facts, pos=self.pos) for rule in (found.start, found.length, active)]  # type: ignore[arg-type]
        return _Range(*values)


@dataclass(frozen=True)
class _Range:
    start: Any
    length: Any
    active: Any


def _premises(space: _Space) -> Proof:
    """Theorem: the last position of the longest sequence satisfies the premises of the proofs below."""
    last = space.pos.value == space.config["max_seq"] - 1
    given = [*space.facts.known, *space.given, *space.bounded, last]
    return satisfiable("rule 7: the premises hold at the last position", given)


def _count(space: _Space) -> Proof:
    """Theorem: 1 <= split_count(pos) <= max_splits."""
    import z3

    return space.prove(
        "between 1 and max_splits splits are active", z3.And(space.count >= 1, space.count <= space.splits)
    )


def _begins(space: _Space) -> Proof:
    """Theorem: split 0 begins at row 0."""
    return space.prove("split 0 begins at row 0", space.edges(0)[0] == 0)


def _disjoint(space: _Space, split: int) -> Proof:
    """Theorem: split s ends where split s + 1 begins, the last active one at pos; active ones have rows (split 0 not at
    pos 0), inactive ones none. So the active splits are disjoint and cover [0, pos).
    """
    import z3

    begin, end = space.edges(split)
    after = space.edges(split + 1)[0] if split + 1 < space.splits else space.pos.value
    last = z3.Implies(space.count == split + 1, end == space.pos.value)
    rows = z3.If(z3.And(space.count > split, space.pos.value > 0), end > begin, end == begin)
    return space.prove(f"split {split} is disjoint, and ends at the next", z3.And(end == after, last, rows))


def _whole(space: _Space, split: int) -> Proof:
    """Theorem: an active split begins at a multiple of 16 rows, so no two splits share a block."""
    import z3

    begin = space.edges(split)[0]
    claim = z3.Implies(space.count > split, begin % KV_BLOCK == 0)
    return space.prove(f"split {split} begins at a whole block", claim)


def _copy(space: _Space, split: int, kv_rows: int) -> Proof:
    """Theorem: a copy lies in the rows of its own K/V head; if it holds row pos then it is the last active split's,
    whose SM appends that row itself, after it has drained the copy (rule 4, `appends`).
    """
    import z3

    padded = space.config["max_seq_padded"]
    copy = space.access("copy_kv", 0, split)
    first = space.head.value * padded
    end = copy.start + copy.length
    inside = z3.And(copy.start >= first, end <= first + padded, end <= kv_rows)
    row = first + space.pos.value
    own = z3.Implies(z3.And(copy.start <= row, row < end), space.count == split + 1)
    claim = z3.Implies(copy.active != 0, z3.And(inside, own, copy.length > 0))
    return space.prove(f"the copy of split {split} stays in its head and in the cache", claim, bounded=True)


def _append(space: _Space, kv_rows: int) -> Proof:
    """Theorem: row pos of a K/V head is inside the head's rows and the cache, and 32 bits hold its number."""
    import z3

    row = space.access("append", 0, 0)
    first = space.head.value * space.config["max_seq_padded"]
    inside = z3.And(row.start == first + space.pos.value, row.length == 1, row.start < kv_rows, row.start <= LONGEST)
    within = row.start < first + space.config["max_seq_padded"]
    return space.prove("the appended row is row pos of its head, in bounds", z3.And(inside, within), bounded=True)


def _alignment(space: _Space) -> Proof:
    """Theorem: a block is a multiple of 16 bytes and at least one fits a ring slot, for every K/V head and split."""
    import z3

    block = kv_block_bytes(space.config)
    start = space.access("copy_kv", 0, 0).start
    whole = z3.And(start * (block // KV_BLOCK) % 16 == 0, z3.IntVal(block) % 16 == 0)
    fits = z3.IntVal(space.config["slot_bytes"]) >= block
    return space.prove("K/V copies are 16-byte aligned blocks that fit a slot", z3.And(whole, fits), bounded=True)
