"""A table has one line for each row, whole, whatever the width."""

import ast
from pathlib import Path

import gkm_cli
import pytest
from gkm_cli.output import table
from gkm_cli.terminal import Terminal

SOURCES = Path(gkm_cli.__file__).parent
LONG = "registry.example/team/" + "a-long-name/" * 30 + "llama:1"


def test_a_cell_is_never_folded_or_cut_and_no_line_ends_in_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    table(("name", "state", "detail"), [("a", LONG, ""), ("bb", "ok", LONG), ("日本", "x", "y")])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "STATE", "DETAIL"],
        ["a", LONG],
        ["bb", "ok", LONG],
        ["日本", "x", "y"],
    ]
    assert lines == [line.rstrip() for line in lines]
    # Characters of two columns are counted as two.
    assert [lines[1].index(LONG), lines[2].index("ok"), lines[3].index("x")] == [6, 6, 4]


def test_foreign_text_stays_in_its_cell(capsys: pytest.CaptureFixture[str]) -> None:
    table(("name",), [("\x1b[2J\n[red]x[/red]",)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].isprintable()
    assert "[red]x[/red]" in lines[1]


def test_the_tables_of_plans_and_trees_are_whole_in_a_pipe_too(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().table(("node", "none", "problem"), [("n", "", LONG)])
    assert capsys.readouterr().out.splitlines() == ["NODE  PROBLEM", f"n     {LONG}"]


def test_no_module_draws_tables_by_itself() -> None:
    drawing = {
        path.name
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "rich.table"
    }
    assert drawing == {"terminal.py"}
