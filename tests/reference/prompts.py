"""What SmolLM2 is asked: code, chat, other languages, one token, hundreds and thousands of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from amk.model.tokenizer import Tokenizer

LICENSE = Path(__file__).parent.parent.parent / "LICENSE"


@dataclass(frozen=True)
class Prompt:
    """A text (or a chat message); `first` and `count` choose a run of its tokens, all of them by default."""

    name: str
    text: str
    chat: bool = False
    first: int = 0
    count: int | None = None

    def ids(self, tokenizer: Tokenizer) -> list[int]:
        """Its tokens."""
        if self.chat:
            return tokenizer.encode_chat([{"role": "user", "content": self.text}])
        ids = tokenizer.encode(self.text)
        return ids[self.first :][: self.count]


def prompts() -> list[Prompt]:
    """Every prompt; the last is the only one of over 2,000 tokens."""
    text = LICENSE.read_text(encoding="utf-8")
    return [
        Prompt("capital", "The capital of France is"),
        Prompt("one-token", "The", count=1),
        Prompt("python", 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'),
        Prompt("c", "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0;"),
        Prompt("json", '{"name": "Alice", "age": 31, "children": [{"name":'),
        Prompt("chat", "Name three colours of the rainbow.", chat=True),
        Prompt("chat-code", "Write a Python function that reverses a string.", chat=True),
        Prompt("german", "Die Hauptstadt von Deutschland ist"),
        Prompt("french", "Il était une fois, dans un petit village,"),
        Prompt("japanese", "日本の首都は"),
        Prompt("russian", "Столица России — это"),
        Prompt("arithmetic", "Question: What is 17 + 25?\nAnswer:"),
        Prompt("emoji", "🤖🏳️‍🌈 \t\t\n\n  Robots are"),
        Prompt("300-tokens", text, first=900, count=300),
        Prompt("2100-tokens", text, first=100, count=2100),
    ]
