"""The `kubectl label` commands that correct labels. Pure.

A correction that only a person can choose is a comment, for instance which of two blocks a rack is in.
"""

import shlex
from collections.abc import Iterable, Iterator

from msgspec import Struct

_NODES_OF_A_COMMAND = 50


class Mend(Struct, frozen=True):
    """A label to set on a node, or to remove (None). `sure` is false if a person must decide."""

    node: str
    key: str
    value: str | None
    sure: bool


def commands(mends: Iterable[Mend]) -> Iterator[str]:
    """Yield the lines of a shell script, the sure ones first; a command has several nodes."""
    nodes: dict[tuple[bool, str, str | None], dict[str, None]] = {}
    for mend in mends:
        nodes.setdefault((not mend.sure, mend.key, mend.value), {})[mend.node] = None
    for (unsure, key, value), found in sorted(nodes.items(), key=lambda item: (item[0][:2], item[0][2] or "")):
        names = list(found)
        change = shlex.quote(f"{key}-" if value is None else f"{key}={value}")
        for first in range(0, len(names), _NODES_OF_A_COMMAND):
            listed = " ".join(map(shlex.quote, names[first : first + _NODES_OF_A_COMMAND]))
            overwrite = "" if value is None else " --overwrite"
            yield f"{'# ' if unsure else ''}kubectl label nodes {listed} {change}{overwrite}"
