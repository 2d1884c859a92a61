"""The command lines with `gkm` in the blocks of a page, and what the command line says of them."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import man_pages

FENCE = re.compile(r"^ *```(console|bash|sh)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SEPARATOR = re.compile(r"\s(?:\||&&|\|\||;|>|<)\s")
"""Between the programs of a line, and before a redirection."""
COMMANDS: dict[tuple[str, ...], Any] = {tuple(words): command for words, command in man_pages.commands()}


def in_blocks(text: str) -> Iterator[str]:
    """Yield the command lines with gkm in blocks of a page, without what surrounds them in a pipe or a loop."""
    for _, block in FENCE.findall(text):
        is_transcript = re.search(r"^ *\$ ", block, re.MULTILINE) is not None
        for line in block.replace("\\\n", " ").splitlines():
            typed = line.strip().removeprefix("$ ")
            if is_transcript and not line.strip().startswith("$ "):
                continue
            for piece in SEPARATOR.split(typed):
                if found := re.match(r"(?:kubectl |srun )?(gkm .*)", piece):
                    yield found[1]


def faults(line: str) -> str:
    """Return what is wrong with a command line, or an empty text."""
    words = shlex.split(line, comments=True)
    path: tuple[str, ...] = ("gkm",)
    while len(path) < len(words) and (*path, words[len(path)]) in COMMANDS:
        path = (*path, words[len(path)])
    command, rest = COMMANDS[path], words[len(path) :]
    if man_pages.names(command) and not (rest and rest[0].startswith("-")):
        return f"no such command: {' '.join(words[:3])}"
    try:
        # Only so can it be made without its required arguments; then the parser must refuse again.
        context = command.make_context(command.name, [], resilient_parsing=True)
        context.resilient_parsing = False
        _, left, _ = command.make_parser(context).parse_args(list(rest))
    except Exception as error:  # noqa: BLE001 -- whatever the parser raises is the finding
        return str(getattr(error, "message", error))
    return f"too many arguments: {left}" if left else ""
