"""Names of nodes as one short text for people, in the order in which people number machines. Pure."""

import re
from collections.abc import Iterable

from gkm.api.node_names import fold

_NUMBER = re.compile(r"([0-9]+)")


def fold_names(names: Iterable[str]) -> str:
    """Return names, each once; gpu-2 comes before gpu-10, so that numbers become ranges."""
    return fold(sorted(set(names), key=_numbered))


def _numbered(name: str) -> tuple[list[str | int], str]:
    parts: list[str | int] = list(_NUMBER.split(name))
    parts[1::2] = [int(number) for number in parts[1::2]]
    # gpu-7 and gpu-07 are two names.
    return parts, name
