"""A certificate is given only for what was proved, and covers only the bytes that it names."""

from __future__ import annotations

import json

import pytest

from schedule_ir.codec import from_json, to_json
from tests.validator import programs
from validator import CertificateError, certificate, check_certificate, validate

CASE = programs.case()
RESOURCES = {"registers": 128, "shared_bytes": CASE.program.config["shared_bytes"]}


def test_round_trip() -> None:
    report = validate(CASE.tables, CASE.model, CASE.gpu)
    given = json.loads(json.dumps(certificate(report, CASE.tables, "abc", RESOURCES)))
    assert check_certificate(given, CASE.tables, "abc") == []
    assert check_certificate(given, from_json(to_json(CASE.tables)), "abc") == []
    assert all(o["status"] == "proved" for o in given["obligations"])
    assert any("cleared" in text for text in given["assumptions"])


def test_other_tables_or_kernel() -> None:
    given = certificate(validate(CASE.tables, CASE.model, CASE.gpu), CASE.tables, "abc", RESOURCES)
    other = programs.case(layers=3).tables
    assert "tables_sha256" in check_certificate(given, other, "abc")[0]
    assert "cubin_sha256" in check_certificate(given, CASE.tables, "abd")[0]
    assert "validator" in check_certificate({**given, "validator": "0"}, CASE.tables, "abc")[0]
    assert (
        "lacks rules 4"
        in check_certificate(
            {**given, "rules": {k: v for k, v in given["rules"].items() if k != "4"}}, CASE.tables, "abc"
        )[0]
    )


def test_refused() -> None:
    rejected = validate(CASE.tables, None, CASE.gpu)
    with pytest.raises(CertificateError, match="not accepted"):
        certificate(rejected, CASE.tables, "abc", RESOURCES)
    partial = validate(CASE.tables, CASE.model, CASE.gpu, rule=7)
    with pytest.raises(CertificateError, match="rules not run"):
        certificate(partial, CASE.tables, "abc", RESOURCES)
    accepted = validate(CASE.tables, CASE.model, CASE.gpu)
    with pytest.raises(CertificateError, match="registers"):
        certificate(accepted, CASE.tables, "abc", {**RESOURCES, "registers": 400})
    with pytest.raises(CertificateError, match="lack integers"):
        certificate(accepted, CASE.tables, "abc", {})
