"""Where the caches of one image lie below the mount path, and which environment variables name them. Pure.

One cache stands at the path itself, as MCV has it. Each of several caches stands in the directory with the name of its
runtime, so that two runtimes never share a directory. An image states its runtimes as one text, such as `vllm-triton`:
it is also a part of names of repositories and objects, which allow a hyphen and no comma.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from gkm.runtimes import BY_NAME, RUNTIMES

SEPARATOR: Final = "-"
"""The character between runtime names; no runtime's name contains it."""


def joined(names: Iterable[str]) -> str:
    """Return the runtime names as one text, such as `vllm-triton`, in the order of the table."""
    named = set(names)
    return SEPARATOR.join(runtime.name for runtime in RUNTIMES if runtime.name in named)


def names_in(text: str) -> tuple[str, ...]:
    """Return the runtime names in a text of `joined`; empty for any other text."""
    names = tuple(text.split(SEPARATOR))
    return names if joined(names) == text and text else ()


def directory_of(name: str, names: Sequence[str]) -> str:
    """Return the subdirectory of a runtime's cache in an image with the runtimes `names`; "" if it is the only one."""
    return name if len(names) > 1 else ""


def beneath(path: str, directory: str) -> str:
    """Return `path` joined with a directory; `path` itself if the directory is ""."""
    return "/".join(filter(None, (path, directory)))


def environment(names: Sequence[str], path: str) -> dict[str, str]:
    """Return the environment variables that make runtimes use the caches mounted at `path`.

    With the path "" the values are the directories relative to it.
    """
    return {
        variable: beneath(path, directory_of(name, names)) for name in names for variable in BY_NAME[name].variables
    }


def beside(names: Sequence[str], path: str) -> dict[str, str]:
    """Return variables for further runtimes of the same programs, so that they compile into a directory at `path`.

    Each names a directory that must be writable: a read-only one ends the program.
    """
    others = dict.fromkeys(other for name in names for other in BY_NAME[name].beside if other not in names)
    return {variable: f"{path}/{other}" for other in others for variable in BY_NAME[other].variables}
