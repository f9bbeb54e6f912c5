"""The README's table of model families is that of the tests. Rewrite it: pytest tests/test_readme.py --update-golden"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amk.cli.main import cli
from tests.families.cases import CASES
from tests.families.gguf_cases import architectures_of

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- families:begin -->", "<!-- families:end -->"


def families() -> str:
    """A row per family: the models, llama.cpp's names of their GGUF files, and what its tests show."""
    rows: dict[str, tuple[str, list[str]]] = {}
    for case in CASES.values():
        _, shows = rows.setdefault(case.family, (case.models, []))
        shows.append(case.shows)
    lines = [
        f"| {family} | {models} | {'; '.join(shows)} | {architectures_of(family) or 'no converter'} |"
        for family, (models, shows) in rows.items()
    ]
    return "\n".join(["| family | models | tested with | GGUF |", "|---|---|---|---|", *lines])


def test_families(update_golden: bool) -> None:
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    expected = f"{before}{BEGIN}\n{families()}\n{END}{after}"
    if update_golden:
        README.write_text(expected, encoding="utf-8")
    assert README.read_text(encoding="utf-8") == expected, "pytest tests/test_readme.py --update-golden rewrites it"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/design.md", "docs/research.md"])
def test_links_lead_somewhere(name: str) -> None:
    path = README.parent / name
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_commands_of_the_readme_exist() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    named = set(re.findall(r"^amk (\w+)", "\n".join(blocks), re.MULTILINE))
    assert named == set(cli.commands)
