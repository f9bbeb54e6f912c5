"""The report of a search: one self-contained HTML page."""

from autoresearch.report.facts import collect
from autoresearch.report.page import render, write_report

__all__ = ["collect", "render", "write_report"]
