"""The certificate of an accepted Program: what was proved, of which bytes, under which assumptions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from schedule_ir.codec import MalformedTablesError, Tables
from schedule_ir.target import Target
from validator.report import RULES, Report
from validator.rules.resources import PENDING, compiled

VERSION = "2"
"""Of the validator: certificates of another version are not accepted."""


class CertificateError(ValueError):
    """No certificate can be given; the message says which condition fails."""


def tables_sha256(tables: Tables) -> str:
    """Hash of everything that the device executes."""
    digest = hashlib.sha256()
    digest.update(json.dumps(tables.header, sort_keys=True, separators=(",", ":"), default=dict).encode())
    for array in (tables.records, tables.ranges):
        digest.update(str(array.shape).encode())
        digest.update(array.astype("<i4").tobytes())
    return digest.hexdigest()


def certificate(report: Report, tables: Tables, cubin_sha256: str, resources: Mapping[str, int]) -> dict[str, Any]:
    """The certificate, as JSON data. `resources` are the compiled kernel's "registers" per thread and "shared_bytes".

    Raises CertificateError for a rejected Program, a rule that was not run, or a kernel that could not be resident.
    """
    missing = sorted(set(RULES) - set(report.rules))
    if not report.ok or missing:
        raise CertificateError(
            f"the Program was not accepted: {len(report.violations)} violations, rules not run: {missing}"
        )
    try:
        broken = compiled(tables.header["config"], Target(**tables.header["target"]), resources)
    except (KeyError, TypeError, MalformedTablesError) as error:
        raise CertificateError(f"the tables have no readable header: {error}") from error
    if broken:
        raise CertificateError(f"rule 11: {broken[0]}")
    open_ = [o.name for o in report.obligations if o.status != "proved" and o.name != PENDING]
    if open_:
        raise CertificateError(f"obligation {open_[0]!r} is not proved")
    return {
        "validator": VERSION,
        "tables_sha256": tables_sha256(tables),
        "cubin_sha256": cubin_sha256,
        "resources": dict(resources),
        "rules": {str(number): RULES[number] for number in sorted(report.rules)},
        "obligations": [{**asdict(o), "status": "proved"} for o in report.obligations],
        "assumptions": list(report.assumptions),
        "stats": dict(report.stats),
    }


def check_certificate(certificate_: Mapping[str, Any], tables: Tables, cubin_sha256: str) -> list[str]:
    """Why this certificate does not cover these tables and this cubin; empty if it does."""
    expected = {"validator": VERSION, "tables_sha256": tables_sha256(tables), "cubin_sha256": cubin_sha256}
    broken = [
        f"certificate {name} is {certificate_.get(name)!r}, here it is {value!r}; build the artifact again"
        for name, value in expected.items()
        if certificate_.get(name) != value
    ]
    missing = sorted(set(map(str, RULES)) - set(certificate_.get("rules", ())))
    if missing:
        broken.append(f"certificate lacks rules {', '.join(missing)}; build the artifact again")
    return broken
