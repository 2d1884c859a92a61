"""Where the caches of one image stand below a path, and which directory each variable names. Pure.

One cache stands at the path itself, as MCV has it. Each of several caches stands in the directory with the name of its
runtime, so that two runtimes never share a directory. An image states its runtimes as one text, such as `vllm-triton`:
it is also a part of names of repositories and objects, which allow a hyphen and no comma.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from gkm.runtimes import BY_NAME, RUNTIMES

SEPARATOR: Final = "-"
"""No runtime has it in its name (tests/unit/core/runtimes)."""


def joined(names: Iterable[str]) -> str:
    """Return the text for these runtimes, in the order of the table."""
    named = set(names)
    return SEPARATOR.join(runtime.name for runtime in RUNTIMES if runtime.name in named)


def names_in(text: str) -> tuple[str, ...]:
    """Return the runtimes that `joined` wrote as `text`; () for any other text."""
    names = tuple(text.split(SEPARATOR))
    return names if joined(names) == text and text else ()


def directory_of(name: str, names: Sequence[str]) -> str:
    """Return the directory of a runtime's cache among the runtimes `names`; "" for the only cache."""
    return name if len(names) > 1 else ""


def beneath(path: str, directory: str) -> str:
    """Return a directory below a path, the path itself for ""."""
    return "/".join(filter(None, (path, directory)))


def environment(names: Sequence[str], path: str) -> dict[str, str]:
    """Return the variables that the runtimes need, for caches that a program sees at `path`.

    With the path "" the values are the directories relative to it.
    """
    return {
        variable: beneath(path, directory_of(name, names)) for name in names for variable in BY_NAME[name].variables
    }


def beside(names: Sequence[str], path: str) -> dict[str, str]:
    """Return the variables of runtimes that have no cache at `path`, but compile in the programs of those that have.

    Each names a directory that must be writable: a read-only one ends the program.
    """
    others = dict.fromkeys(other for name in names for other in BY_NAME[name].beside if other not in names)
    return {variable: f"{path}/{other}" for other in others for variable in BY_NAME[other].variables}
