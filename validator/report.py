"""The validator's answer: violations with witnesses, solver obligations, and what the proof assumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

RULES: Mapping[int, str] = {
    1: "codec",
    2: "progress",
    3: "producers",
    4: "races",
    5: "carried order",
    6: "ring",
    7: "K/V",
    8: "bounds",
    9: "coverage",
    10: "epochs",
    11: "resources",
    12: "meaning",
}


@dataclass(frozen=True)
class Violation:
    """A broken rule: what is wrong with which value, and the tasks, ranges or cycle that show it."""

    rule: int
    message: str
    witness: str = ""


@dataclass(frozen=True)
class Obligation:
    """A statement for the solver: "proved", "refuted", "unknown", or "pending" until the kernel is compiled."""

    name: str
    status: str
    seconds: float


@dataclass(frozen=True)
class Report:
    """The verdict on one set of device tables. `stats` has tasks, lanes, handoffs and seconds."""

    ok: bool
    violations: tuple[Violation, ...]
    obligations: tuple[Obligation, ...]
    stats: Mapping[str, float]
    assumptions: tuple[str, ...]
    rules: tuple[int, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    def text(self) -> str:
        """For a person: the verdict, then each violation with its witness."""
        stats = self.stats
        size = f"{stats['tasks']:.0f} tasks, {stats['lanes']:.0f} lanes, {stats['handoffs']:.0f} hand-offs"
        verdict = "accepted" if self.ok else f"REJECTED ({len(self.violations)} violations)"
        lines = [f"{verdict}: {size}, {len(self.obligations)} obligations, {stats['seconds']:.2f} s"]
        for violation in self.violations:
            lines.append(f"rule {violation.rule} ({RULES[violation.rule]}): {violation.message}")
            lines += [f"    {line}" for line in violation.witness.splitlines()]
        lines += [f"obligation {o.name}: {o.status}" for o in self.obligations if o.status != "proved"]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def json_text(self) -> str:
        """As one line of JSON."""
        return json.dumps(self.to_json())
