"""A table has one line for each row, whole, whatever the width; in a pipe it is the same for every COLUMNS."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import gkm_cli
import pytest
from gkm_cli.output import table
from gkm_cli.terminal import Terminal
from support.cli.command import CACHE, gkm, pushed
from support.registry.server import Registry

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


@pytest.mark.parametrize("command", ["inspect", "verify", "detect", "dry-run"])
def test_a_command_in_a_pipe_prints_the_same_at_every_width(
    registry_server: Registry, tmp_path: Path, command: str
) -> None:
    name = "a-long-name/" * 12 + "llama"
    arguments: dict[str, list[str]] = {
        "inspect": ["cache", "inspect", "--plain-http", pushed(registry_server, name)],
        "verify": ["cache", "verify", "--plain-http", pushed(registry_server, name), "--key", str(_key(tmp_path))],
        "detect": ["node", "detect"],
        "dry-run": ["cache", "build", str(CACHE), "--image", LONG, "--dry-run"],
    }
    done = [_piped(arguments[command], columns) for columns in (20, 80, 1000)]
    assert len({(each.returncode, each.stdout) for each in done}) == 1, done
    assert done[0].stdout
    assert all(line == line.rstrip() for line in done[0].stdout.splitlines())


def _key(directory: Path) -> Path:
    made = gkm("keygen", "--output-key-prefix", directory / "key", env={**os.environ, "COSIGN_PASSWORD": ""})
    assert made.returncode == 0, made.stderr
    return directory / "key.pub"


def _piped(arguments: list[str], columns: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "gkm_cli.main", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
