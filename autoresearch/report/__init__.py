"""The report of a search: one self-contained HTML page."""

from autoresearch.report.facts import collect
from autoresearch.report.page import render, write_report
from autoresearch.report.text import status_lines

__all__ = ["collect", "render", "status_lines", "write_report"]
