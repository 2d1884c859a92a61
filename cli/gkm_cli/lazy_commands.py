"""Commands that are imported when they run: a help text, and every other command, must not wait for their imports.

A table states name, place and help of each command, so that `gkm --help` does not import them. Groups of options are
dataclasses: a command takes one value for each group, and its user sees the single options.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from gkm_cli.calls import CallOptions
from gkm_cli.output import PROGRAM


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command, or a group of commands (a Typer), by module and attribute; it is imported when it runs.

    `example` is a command line with {program} for the name of the program; `context` are settings of the parser.
    """

    module: str
    attribute: str
    help: str
    example: str = ""
    context: Mapping[str, Any] | None = None

    def load(self, name: str) -> Any:  # noqa: ANN401 -- the commands of typer have no public base class
        """Import and return the command; `name` is its name on the command line."""
        found: typer.Typer | Callable[..., None] = getattr(import_module(self.module), self.attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        # Without rich, whose import takes as long as the rest of a help text.
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        epilog = f"Example: {self.example.replace('{program}', PROGRAM)}" if self.example else None
        app.command(name, cls=PlainCommand, help=self.help, epilog=epilog, context_settings=dict(self.context or {}))(
            with_groups(found)
        )
        return typer.main.get_command(app)


class PlainHelp:
    """The help of a command for an output without some characters: typer writes UTF-8 whatever the output is."""

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401 -- typer's
        """Return the text of --help, with escapes for the characters that standard output cannot show."""
        text: str = super().get_help(ctx)  # type: ignore[misc]
        encoding = sys.stdout.encoding or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)


class PlainCommand(PlainHelp, TyperCommand):
    """A command in a group of typer."""


class CommandGroup(PlainHelp, TyperGroup):
    """A group of commands whose help has whole sentences: click cuts them at 45 characters."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 -- typer's
        super().__init__(**attributes)
        for command in self.commands.values():
            command.short_help = (command.help or "").partition("\n\n")[0]


def lazy_group(table: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """Return the class of a group, for `typer.Typer(cls=…)`, with the commands of the table, in its order."""

    class LazyGroup(PlainHelp, TyperGroup):
        def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 -- typer's
            super().__init__(**attributes)
            # The attributes that a list of commands needs.
            self.commands = {
                name: TyperCommand(name, help=lazy.help, short_help=lazy.help) for name, lazy in table.items()
            }
            self._load = cache(lambda name: table[name].load(name))

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 -- typer's
            """Return name, command and arguments of the command to run."""
            name, command, rest = super().resolve_command(ctx, args)
            return name, self._load(name) if command is not None else None, rest

    return LazyGroup


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for typer in which the fields of each dataclass parameter are separate options.

    Groups may have fields in common: the user gives these options once, and they come last.
    """
    declared = signature(command)
    kinds = {name: parameter.annotation for name, parameter in declared.parameters.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}

    @wraps(command)
    def expanded(**values: object) -> None:
        made = {
            name: group(**{field.name: values[field.name] for field in fields(group)}) for name, group in groups.items()
        }
        others = {name: value for name, value in values.items() if name in declared.parameters}
        with ExitStack() as stack:
            for group in made.values():
                if isinstance(group, CallOptions):
                    stack.enter_context(group.applied())
                    break
            command(**others, **made)

    options: dict[str, Parameter] = {}
    for name, parameter in declared.parameters.items():
        options |= signature(groups[name]).parameters if name in groups else {name: parameter}
    expanded.__signature__ = declared.replace(parameters=_calls_last(options.values()))  # type: ignore[attr-defined]
    return expanded


def _calls_last(options: Iterable[Parameter]) -> list[Parameter]:
    of_calls = {field.name for field in fields(CallOptions)}
    return sorted(options, key=lambda option: option.name in of_calls)
