"""CUDA headers for the host's compiler: every asm statement becomes calls of C++ functions named for its instructions.

    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
    do { emu::ptx::mbarrier_init_shared_b64(emu::address(barrier), (arrivals)); } while (0);

So the kernels' own PTX is executed, with its own operands in their own order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_ASM = re.compile(r"\basm\s*(?:volatile\s*)?\(")
_SHARED = re.compile(r"^\s*extern\s+__shared__\s[^;]*?(\w+)\[\];", re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_INSTRUCTION = re.compile(r"(?:@(!?)(\w+)\s+)?([a-z]\w*(?:(?:\.|::)\w+)*)\s*(.*)", re.DOTALL)
_REGISTER = re.compile(r"\.reg\s+\.(\w+)\s+(.*)", re.DOTALL)
_TYPES = {"pred": "bool", "b16": "unsigned short", "b32": "unsigned", "b64": "unsigned long long", "f32": "float"}
_PAIRS = {"(": ")", "[": "]", "{": "}"}


class UnknownPtxError(Exception):
    """An asm statement of a kind that the translator does not know."""


def translate(source: str) -> str:
    """CUDA source as C++; line numbers stay."""
    source = _COMMENT.sub("", source)
    source = _SHARED.sub(r"\n#define \1 (::emu::shared_memory)\n", source)
    parts, end = [], 0
    for match in _ASM.finditer(source):
        close = _closing(source, match.end() - 1)
        parts += [source[end : match.start()], _statement(source[match.end() : close])]
        parts.append("\n" * source.count("\n", match.start(), close))
        end = close + 1
    return "".join([*parts, source[end:]])


def _closing(text: str, opening: int) -> int:
    """Where the bracket at `opening` is closed."""
    depth = [_PAIRS[text[opening]]]
    at = opening + 1
    while depth:
        string = _STRING.match(text, at)
        if string:
            at = string.end()
            continue
        if text[at] in _PAIRS:
            depth.append(_PAIRS[text[at]])
        elif text[at] == depth[-1]:
            depth.pop()
        at += 1
    return at - 1


def _split(text: str, separator: str) -> list[str]:
    """Parts of `text` between separators that are in no bracket or string."""
    parts, begin, at = [], 0, 0
    while at < len(text):
        string = _STRING.match(text, at)
        if string:
            at = string.end()
        elif text[at] in _PAIRS:
            at = _closing(text, at) + 1
        else:
            if text[at] == separator:
                parts.append(text[begin:at])
                begin = at + 1
            at += 1
    return [*parts, text[begin:]]


def _statement(inside: str) -> str:
    """The C++ statement for what stands between the brackets of asm( )."""
    template, *sections = _split(inside, ":")
    text = "".join(ast.literal_eval(string) for string in _STRING.findall(template))
    operands = [operand for section in sections[:2] for operand in _operands(section)]
    code = " ".join(_line(line, operands) for line in _lines(text))
    return f"do {{ {code} }} while (0)"


def _operands(section: str) -> Iterator[str]:
    """The C++ expressions of "constraint"(expression), ..."""
    for operand in _split(section, ","):
        if operand.strip():
            yield operand[operand.index("(") :].strip()


def _lines(text: str) -> Iterator[str]:
    for line in text.split(";"):
        bare = line.strip()
        if bare.startswith("{"):
            bare = bare[1:].strip()
        if bare and bare != "}":
            yield bare


def _line(line: str, operands: list[str]) -> str:
    register = _REGISTER.fullmatch(line)
    if register:
        return f"{_TYPES[register[1]]} {register[2]};"
    match = _INSTRUCTION.fullmatch(line)
    if not match:
        raise UnknownPtxError(line)
    negated, predicate, opcode, rest = match.groups()
    arguments = [_operand(operand, operands) for operand in _flat(rest)]
    call = f"::emu::ptx::{re.sub(r'[.:]+', '_', opcode)}({', '.join(arguments)});"
    return f"if ({negated}{predicate}) {call}" if predicate else call


def _flat(operands: str) -> Iterator[str]:
    """Operands, those of a vector one by one."""
    for operand in _split(operands, ","):
        bare = operand.strip()
        if bare.startswith("{"):
            yield from _flat(bare[1:-1])
        elif bare:
            yield bare


def _operand(text: str, operands: list[str]) -> str:
    if text.startswith("["):
        base, *offset = text[1:-1].split("+")
        address = f"::emu::address({_operand(base.strip(), operands)})"
        return " + ".join([address, *offset])
    if text == "_":
        return "::emu::Sink{}"
    if re.fullmatch(r"%\d+", text):
        return operands[int(text[1:])]
    return f"::emu::ptx::{text[1:]}()" if text.startswith("%") else text
