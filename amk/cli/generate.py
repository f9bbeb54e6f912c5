"""`amk generate`: greedy decoding, each token printed as it appears."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

import amk
from amk.cli.options import artifact_argument, debug_option, json_option
from amk.cli.prompt import parse_ids, read_prompt
from amk.errors import UsageError
from amk.progress import ConsoleProgress

if TYPE_CHECKING:
    from amk.runtime.session import Session, Token

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


@dataclass
class Run:
    """The tokens of one generation so far, when they came, and why it ended."""

    tokens: list[Token] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    first: float | None = None
    last: float | None = None
    finish_reason: str = "length"

    def add(self, token: Token) -> None:
        """Note a token and the time it came."""
        self.last = time.monotonic()
        self.first = self.first or self.last
        self.tokens.append(token)

    @property
    def timings(self) -> dict[str, float | None]:
        """Seconds to the first token, and tokens per second after it."""
        if self.first is None or self.last is None:
            return {"first_token_seconds": None, "tokens_per_second": None}
        after_first = self.last - self.first
        rate = (len(self.tokens) - 1) / after_first if after_first > 0 else None
        return {"first_token_seconds": self.first - self.started, "tokens_per_second": rate}

    def as_dict(self) -> dict[str, object]:
        """What --json prints."""
        return {
            "text": "".join(token.text for token in self.tokens),
            "token_ids": [token.id for token in self.tokens],
            "finish_reason": self.finish_reason,
            "timings": self.timings,
        }

    def summary(self) -> str:
        """One line for a person."""
        first, rate = self.timings.values()
        parts = [f"{len(self.tokens)} tokens", f"ended by {self.finish_reason}"]
        parts += [] if first is None else [f"first after {first:.2f} s"]
        parts += [] if rate is None else [f"then {rate:.1f} tokens/s"]
        return ", ".join(parts)


@click.command()
@artifact_argument
@click.argument("stdin", metavar="[-]", required=False, type=click.Choice(["-"]))
@click.option("--prompt", metavar="TEXT", help="The prompt.")
@click.option("--prompt-file", type=click.Path(path_type=Path), metavar="FILE", help="A file with the prompt.")
@click.option("--chat", is_flag=True, help="Wrap the prompt in the model's chat template.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), default=128, show_default=True, metavar="N")
@click.option("--device", type=click.Choice(["auto", "cuda", "cpu"]), default="auto", show_default=True)
@click.option("--unsafe", is_flag=True, help="Run a kernel that the validator's certificate does not cover.")
@click.option("--ids", "as_ids", is_flag=True, help="The prompt is token ids, and so is the output.")
@json_option
@debug_option
def generate(
    directory: Path,
    stdin: str | None,
    prompt: str | None,
    prompt_file: Path | None,
    chat: bool,
    max_new_tokens: int,
    device: str,
    unsafe: bool,
    as_ids: bool,
    as_json: bool,
) -> None:
    """Continue a prompt greedily with the artifact in DIR; "-" reads the prompt from standard input."""
    if chat and as_ids:
        raise UsageError("--chat with --ids: a template wraps text, not ids; leave one of them out")
    text = read_prompt(prompt, prompt_file, stdin is not None)
    request = parse_ids(text) if as_ids else text
    progress = ConsoleProgress()
    with progress.step(f"Loading {directory}"):
        session = amk.load(directory, device=device, progress=progress, unsafe=unsafe)
    show = (lambda _: None) if as_json else _print_id if as_ids else _print_text
    with session:
        run = decode(session, request, max_new_tokens, chat, show)
    click.echo(json.dumps(run.as_dict()) if as_json else "")
    click.echo(run.summary(), err=True)
    if run.finish_reason == "interrupted":
        raise click.exceptions.Exit(INTERRUPTED)


def decode(
    session: Session, prompt: str | list[int], max_new_tokens: int, chat: bool, show: Callable[[Token], None]
) -> Run:
    """Stream tokens into `show` until the model stops, the limit is reached or Ctrl-C is pressed."""
    run = Run()
    try:
        for token in session.stream(prompt, max_new_tokens=max_new_tokens, chat=chat):
            run.add(token)
            show(token)
    except KeyboardInterrupt:
        run.finish_reason = "interrupted"
        return run
    run.finish_reason = "length" if len(run.tokens) >= max_new_tokens else "stop"
    return run


def _print_text(token: Token) -> None:
    click.echo(token.text, nl=False)


def _print_id(token: Token) -> None:
    click.echo(f"{token.id} ", nl=False)
