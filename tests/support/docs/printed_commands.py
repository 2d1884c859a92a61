"""The command lines of gkm and kubectl in the texts that the products print; an expression in one is the word VALUE."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = ("cli/gkm_cli", "core/gkm", "agent/gkm_agent", "csi/gkm_csi", "operator/gkm_operator")
VALUE = "VALUE"
_PROSE = r"deletes|has|lists|prints|says|shows|writes"
_KUBECTL = re.compile(rf"\b(kubectl [a-z][^`;,():|]*?)(?= (?:{_PROSE})\b|[`;,():|]|$)")
_MAKERS = {"kubectl": ("kubectl",), "command": ()}
"""The functions that quote the words of a command line, and the words that each puts in front."""
_OF_A_COMMAND = re.compile(r"\bgkm [a-z]|\bkubectl\b|\bcommand\(")
"""Each file with a command line has it: the other files, most of them, need not be parsed."""


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Return (place, text) of each string, but docstrings, in the files of the products with command lines."""
    return tuple(found for root in SOURCES for path in sorted((ROOT / root).rglob("*.py")) for found in _texts(path))


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    source = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(source))) if _OF_A_COMMAND.search(source) else []
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    inner = {id(each) for node in nodes if isinstance(node, ast.JoinedStr) for each in node.values}
    left_out = docstrings | inner
    for node in nodes:
        if id(node) not in left_out and (text := _text(node)):
            yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", text


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w*\}", VALUE, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else VALUE for each in node.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MAKERS:
        words = [_text(word) or VALUE for word in node.args if not isinstance(word, ast.Starred)]
        return " ".join((*_MAKERS[node.func.id], *words))
    return ""


def kubectl_lines() -> list[tuple[str, str]]:
    """Return the command lines of kubectl that have an object, once each."""
    found = {line.strip(): place for place, text in texts() for line in _KUBECTL.findall(text)}
    return [(place, line) for line, place in found.items() if len(line.split()) > 2]
