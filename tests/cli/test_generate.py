"""`amk generate`: prompts, streaming, JSON, ids and Ctrl-C."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amk.cli.prompt import parse_ids
from amk.errors import UsageError
from tests.cli.conftest import FakeSession, FakeToken, Run


def test_text(run: Run, session: FakeSession) -> None:
    result = run("generate", "d", "--prompt", "The capital of France is", "--max-new-tokens", "4")
    assert result.exit_code == 0
    assert result.stdout == " Paris.\n"
    assert "2 tokens, ended by stop" in result.stderr
    assert session.calls == [{"prompt": "The capital of France is", "max_new_tokens": 4, "chat": False}]
    assert session.closed


def test_json(run: Run, session: FakeSession) -> None:
    document = json.loads(run("generate", "d", "--prompt", "p", "--max-new-tokens", "2", "--json").stdout)
    assert document["text"] == " Paris."
    assert document["token_ids"] == [7, 9]
    assert document["finish_reason"] == "length"
    assert set(document["timings"]) == {"first_token_seconds", "tokens_per_second"}


def test_ids(run: Run, session: FakeSession) -> None:
    assert run("generate", "d", "--ids", "--prompt", "1, 2\n3").stdout == "7 9 \n"
    assert session.calls[0]["prompt"] == [1, 2, 3]


def test_chat(run: Run, session: FakeSession) -> None:
    run("generate", "d", "--chat", "--prompt", "hi")
    assert session.calls[0]["chat"] is True


def test_prompt_from_a_file(run: Run, session: FakeSession, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("naïve\n", encoding="utf-8")
    run("generate", "d", "--prompt-file", str(file))
    assert session.calls[0]["prompt"] == "naïve\n"


def test_prompt_from_standard_input(run: Run, session: FakeSession) -> None:
    run("generate", "d", "-", stdin=b"a\nb")
    assert session.calls[0]["prompt"] == "a\nb"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "no prompt; give one of"),
        (("-", "--prompt", "p"), "2 prompts; give one of"),
        (("--prompt", ""), "--prompt is empty"),
        (("-",), "standard input is empty"),
        (("--prompt-file", "/nowhere"), "--prompt-file /nowhere: No such file or directory"),
        (("--prompt", "p", "--chat", "--ids"), "--chat with --ids"),
        (("--prompt", "1 -2", "--ids"), "'-2' is not a token id"),
        (("--prompt", " ", "--ids"), "holds no token id"),
    ],
)
def test_bad_prompts(run: Run, session: FakeSession, args: tuple[str, ...], says: str) -> None:
    result = run("generate", "d", *args, stdin=b"")
    assert result.exit_code == 2
    assert says in result.stderr
    assert not session.calls


def test_prompt_that_is_not_utf8(run: Run, session: FakeSession) -> None:
    result = run("generate", "d", "-", stdin=b"ab\xff")
    assert result.exit_code == 2
    assert "standard input: byte 2 is not UTF-8" in result.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_keeps_what_there_is(run: Run, session: FakeSession, as_json: bool) -> None:
    session.script = [FakeToken(7, " Paris"), KeyboardInterrupt()]
    result = run("generate", "d", "--prompt", "p", *(["--json"] if as_json else []))
    assert result.exit_code == 130
    assert session.closed
    if as_json:
        assert json.loads(result.stdout)["finish_reason"] == "interrupted"
    else:
        assert result.stdout == " Paris\n"


def test_ids_of_other_scripts_are_no_digits() -> None:
    with pytest.raises(UsageError, match="is not a token id"):
        parse_ids("١")
