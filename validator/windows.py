"""What the solver proves of the attention splits of a layer with a sliding window: once per configuration and window.

Such a layer has as many splits as any other, and shares the blocks that the window reaches out evenly: split s of n
begins after floor(s B / n) of the B blocks. What is needed of that quotient is proved for each s and n, where all is
linear; the rest then takes the quotients of a split and of the next as any numbers of which this is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

from schedule_ir.expr import ExprLike, lift, var
from schedule_ir.layout import (
    KV_BLOCK,
    split_begin,
    split_end,
    window_begin,
    window_blocks,
    window_first,
    window_share,
)
from schedule_ir.registry import REGISTRY
from validator.activity import substitute
from validator.obligations import USED
from validator.solver import LONGEST, Facts, Proof, Term, prove, term


class Place(StrEnum):
    """Of a split among the active ones."""

    BEFORE = "before the last"
    LAST = "the last active"
    INACTIVE = "inactive"


def window_proofs(config: Mapping[str, int], kv_rows: int, window: int) -> tuple[Proof, ...]:
    """All obligations of rule 7 for the layers that see the last `window` positions."""
    return _shares(config["max_splits"]) + _proofs(tuple((name, config[name]) for name in USED), kv_rows, window)


@lru_cache(maxsize=64)
def _shares(most: int) -> tuple[Proof, ...]:
    """Theorem: of B blocks, split s of n begins after x and ends after y, as `_known` says of its place."""
    return tuple(_share(count, split) for count in range(1, most + 1) for split in range(most))


def _share(count: int, split: int) -> Proof:
    import z3

    blocks = z3.Int("blocks")
    x, y = blocks * split / count, blocks * (split + 1) / count
    place = Place.BEFORE if split < count - 1 else Place.LAST if split == count - 1 else Place.INACTIVE
    name = f"rule 7: share of split {split} of {count} in the blocks of a window"
    return prove(name, [blocks >= 0], _known(place, split, blocks, x, y))


def _known(place: Place, split: int, blocks: Any, x: Any, y: Any) -> Any:
    """What the proofs below use of the blocks before a split and before the next."""
    import z3

    claims = [x >= 0, x <= y, x == 0] if split == 0 else [x >= 0, x <= y]
    if place is Place.BEFORE:
        claims.append(z3.Implies(blocks >= 1, y <= blocks - 1))
    elif place is Place.LAST:
        claims += [y == blocks, z3.Implies(blocks >= 1, x <= blocks - 1)]
    else:
        claims.append(x >= blocks)
    return z3.And(*claims)


@lru_cache(maxsize=256)
def _proofs(items: tuple[tuple[str, int], ...], kv_rows: int, window: int) -> tuple[Proof, ...]:
    space = _Space(dict(items), window)
    splits = range(space.config["max_splits"])
    return (space.visible(), *(space.split(split, place, kv_rows) for split in splits for place in Place))


class _Space:
    """Symbolic position, sequence length and K/V head, and the blocks before a split (x) and before the next (y)."""

    def __init__(self, config: Mapping[str, int], window: int) -> None:
        import z3

        self.config, self.window, self.facts = config, window, Facts(())
        names = ("pos", "max_seq", "kv_head", "x", "y")
        self.pos, self.length, self.head, self.x, self.y = (Term(z3.Int(name), self.facts) for name in names)
        heads = config["layers"] * config["kv_heads"]
        self.given = [self.pos.value >= 0, self.pos.value < self.length.value, self.length.value <= LONGEST]
        self.given += [self.length.value <= config["max_seq"], self.head.value >= 0, self.head.value < heads]

    def _term(self, rule: ExprLike, split: int = 0) -> Any:
        """A rule of a split, with its share of the blocks and the next one's as x and y."""
        shares = (window_share(self.config, s, self.window) for s in (split, split + 1))
        named = lift(rule)
        for share, name in zip(shares, ("x", "y"), strict=True):
            named = substitute(named, share, var(name))
        return term(named, self.facts, pos=self.pos, x=self.x, y=self.y)

    def visible(self) -> Proof:
        """Theorem: the first copied block is the one that holds the first visible row."""
        import z3

        first, begin = self._term(window_first(self.window)), self._term(window_begin(self.window))
        claim = z3.And(begin <= first, first - begin < KV_BLOCK, begin % KV_BLOCK == 0, first <= self.pos.value)
        return prove(f"rule 7: window {self.window} begins in its first block", self.given, claim)

    def split(self, split: int, place: Place, kv_rows: int) -> Proof:
        """Theorem: split 0 begins at the window's first block, the last active one ends at pos; one with rows begins at
        a whole block, an inactive one has none; its copy lies in the rows of its K/V head, and holds row pos only if
        it is the last active one. (That a split ends where the next begins is the rule's own form.)
        """
        import z3

        begin, end = (self._term(rule(self.config, split, self.window), split) for rule in (split_begin, split_end))
        known = _known(place, split, self._term(window_blocks(self.window)), self.x.value, self.y.value)
        order = end == begin if place is Place.INACTIVE else end >= begin
        claims = [order, z3.Implies(end > begin, begin % KV_BLOCK == 0), self._copy(split, place, kv_rows)]
        if split == 0:
            first = self._term(window_begin(self.window))
            claims.append(begin == z3.If(first <= self.pos.value, first, self.pos.value))
        if place is Place.LAST:
            claims.append(end == self.pos.value)
        name = f"rule 7: window {self.window}, split {split} as {place}: covers its blocks, stays in the cache"
        return prove(name, [*self.given, known], z3.And(*claims))

    def _copy(self, split: int, place: Place, kv_rows: int) -> Any:
        import z3

        args: dict[str, Any] = {"split": split, "kv_head": self.head}
        (copy,) = REGISTRY["copy_kv"].accesses(args, {"window": self.window}, self.config)
        start, length, active = (self._term(rule, split) for rule in (copy.start, copy.length, copy.active or 1))
        padded = self.config["max_seq_padded"]
        first = self.head.value * padded
        inside = z3.And(start >= first, start + length <= first + padded, start + length <= kv_rows)
        row = first + self.pos.value
        own = z3.BoolVal(True) if place is Place.LAST else z3.Not(z3.And(start <= row, row < start + length))
        return z3.Implies(active != 0, z3.And(inside, own, length > 0))
