"""Names of nodes as a short text with ranges, in numeric order. Pure."""

import re
from collections.abc import Iterable

from gkm.api.node_names import fold

_NUMBER = re.compile(r"([0-9]+)")


def fold_names(names: Iterable[str]) -> str:
    """Return the names, each once; gpu-2 precedes gpu-10, so that numbers become ranges."""
    return fold(sorted(set(names), key=_numbered))


def _numbered(name: str) -> tuple[list[str | int], str]:
    parts: list[str | int] = list(_NUMBER.split(name))
    parts[1::2] = [int(number) for number in parts[1::2]]
    # gpu-7 and gpu-07 are different names.
    return parts, name
