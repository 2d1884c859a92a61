"""The command lines with `gkm` in the blocks of a page."""

import re
from collections.abc import Iterator

FENCE = re.compile(r"^ *```(console|bash|sh)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SEPARATOR = re.compile(r"\s(?:\||&&|\|\||;|>|<)\s")
"""Between the programs of a line, and before a redirection."""


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
