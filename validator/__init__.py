"""Decides whether a Program may run: no deadlock, no race, nothing out of bounds, for every position.

`validate` reads the device tables; `certificate` binds its verdict to the tables and the compiled kernel.
"""

from validator.certificate import CertificateError, certificate, check_certificate, tables_sha256
from validator.report import RULES, Obligation, Report, Violation
from validator.validate import validate

__all__ = [
    "RULES",
    "CertificateError",
    "Obligation",
    "Report",
    "Violation",
    "certificate",
    "check_certificate",
    "tables_sha256",
    "validate",
]
