"""Every command that a next step of ours prints exists, and parses with all that it requires."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import man_pages
import pytest
from support.cli.command import gkm
from typer._click.exceptions import MissingParameter, NoSuchOption

ROOT = Path(__file__).parents[3]
SOURCES = ("cli/gkm_cli", "core/gkm", "agent/gkm_agent", "csi/gkm_csi", "operator/gkm_operator")
COMMANDS: dict[tuple[str, ...], Any] = {tuple(words): command for words, command in man_pages.commands()}
GROUPS = {path for path, command in COMMANDS.items() if man_pages.names(command)}
NAMED = re.compile(r"(?<![\w/.-])gkm ((?:[a-z]+)(?: [a-z]+)?)")
WHOLE = re.compile(r"(?:: |`|\| )(gkm (?!rewrites)[^`;,()]*?)(?:`|$)")
"""A command line that ends a text, or stands in backticks."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of each string, but docstrings; an expression in it is a word."""
    for root in SOURCES:
        for path in sorted((ROOT / root).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            inner = {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in node.values}
            for node in ast.walk(tree):
                if id(node) not in docstrings | inner and (text := _text(node)) and "gkm " in text:
                    yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", text


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"\{\w*\}", "VALUE", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "VALUE" for each in node.values)
    return ""


def remedies() -> list[tuple[str, str]]:
    """Return each command line that has an argument or an option; the others name a command."""
    lines = [(place, line.strip()) for place, text in texts() for line in WHOLE.findall(text)]
    return [(place, line) for place, line in lines if _path(line) != tuple(shlex.split(line)) or len(_path(line)) < 2]


def _path(line: str) -> tuple[str, ...]:
    words = shlex.split(line)
    return tuple(words[: max(n for n in range(1, len(words) + 1) if tuple(words[:n]) in COMMANDS)])


def fault(line: str) -> str:
    """Return what is wrong with a whole command line; a value that is a placeholder may be any."""
    words, path = shlex.split(line), _path(line)
    rest = words[len(path) :]
    if path in GROUPS and not (rest and rest[0].startswith("-")):
        return f"no such command: {line}"
    try:
        COMMANDS[path].make_context(path[-1], list(rest))
    except (MissingParameter, NoSuchOption) as error:
        return str(error)
    except Exception:  # noqa: BLE001 -- a placeholder is no file and no number
        return ""
    return ""


@pytest.mark.parametrize(("place", "line"), remedies())
def test_a_printed_command_line_parses(place: str, line: str) -> None:
    assert fault(line) == "", place


def test_each_command_that_a_text_names_exists() -> None:
    areas = {path[1] for path in COMMANDS if len(path) > 1}
    wrong = [
        (place, words)
        for place, text in texts()
        for words in NAMED.findall(text)
        if words.split()[0] in areas
        and ("gkm", words.split()[0]) in GROUPS
        and len(words.split()) > 1
        and ("gkm", *words.split()) not in COMMANDS
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "why"),
    [("gkm login VALUE", "Missing"), ("gkm cache lst", "no such"), ("gkm why --nope", "No such option")],
)
def test_a_line_that_does_not_run_is_found(line: str, why: str) -> None:
    assert why.lower() in fault(line).lower()


def test_there_are_such_lines() -> None:
    assert len(remedies()) >= 8


def test_a_wrong_value_has_no_words_of_a_library() -> None:
    done = gkm("cache", "list", "-o", "foo")
    assert (done.returncode, done.stderr.partition(";")[0]) == (
        2,
        "error: Invalid value for '-o' / '--output': 'foo' is not one of 'table', 'json', 'yaml'",
    )
