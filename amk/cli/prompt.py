"""Where `amk generate` gets its prompt: an option, a file or standard input, as text or as token ids."""

from __future__ import annotations

import sys
from pathlib import Path

from amk.errors import UsageError


def read_prompt(prompt: str | None, prompt_file: Path | None, stdin: bool) -> str:
    """The prompt text from the one source that was given."""
    given = (prompt is not None) + (prompt_file is not None) + stdin
    if given != 1:
        problem = "no prompt" if given == 0 else f"{given} prompts"
        raise UsageError(f"{problem}; give one of --prompt TEXT, --prompt-file FILE and - (standard input)")
    if prompt is not None:
        text, source = prompt, "--prompt"
    elif prompt_file is not None:
        text, source = _decode(_read(prompt_file), f"--prompt-file {prompt_file}"), f"--prompt-file {prompt_file}"
    else:
        text, source = _decode(sys.stdin.buffer.read(), "standard input"), "standard input"
    if not text:
        raise UsageError(f"{source} is empty; the model needs at least one token")
    return text


def parse_ids(text: str) -> list[int]:
    """Token ids, separated by spaces, commas or line ends. Their range is for the session to check."""
    words = text.replace(",", " ").split()
    bad = next((word for word in words if not word.isascii() or not word.isdecimal()), None)
    if bad is not None:
        raise UsageError(f"--ids: {bad!r} is not a token id; give whole numbers separated by spaces or commas")
    if not words:
        raise UsageError("--ids: the prompt holds no token id; the model needs at least one")
    return [int(word) for word in words]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"--prompt-file {path}: {error.strerror}; name a readable text file") from error


def _decode(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: byte {error.start} is not UTF-8; convert it to UTF-8") from error
