"""A group of options in a command: its user sees single options, the command gets one value."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from gkm_cli.lazy_commands import with_groups
from typer.testing import CliRunner


@dataclass(frozen=True, kw_only=True)
class Access:
    host: Annotated[str, typer.Option("--host")]
    plain: Annotated[bool, typer.Option("--plain", help="Without TLS.")] = False


def show(name: str, *, access: Access, count: int = 1) -> None:
    typer.echo(f"{name} {access.host} {access.plain} {count}")


def run(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(with_groups(show))
    done = CliRunner().invoke(app, words)
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["x", "--host", "h"], "x h False 1\n"),
        (["--count", "2", "--plain", "--host", "h", "x"], "x h True 2\n"),
    ],
)
def test_a_command_gets_the_values_of_a_group_as_one(words: list[str], expected: str) -> None:
    assert run(*words) == (0, expected)


def test_the_options_of_a_group_are_in_the_help_and_keep_their_defaults() -> None:
    code, text = run("--help")
    assert code == 0
    assert text.index("--host") < text.index("--plain") < text.index("--count")
    assert "Without TLS." in text


def test_an_option_of_a_group_without_a_default_is_required() -> None:
    code, text = run("x")
    assert code == 2
    assert "--host" in text
