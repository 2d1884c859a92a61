"""The layout of a cache directory: which paths a runtime writes, and the kind of file at each. Pure.

A layout is a grammar of names. Each place has a pattern for one name, and says what a file of this name is, or which
layout a directory of this name has. Layouts nest as runtimes do: vLLM's layout contains the layouts of TorchInductor
and Triton.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class FileKind(StrEnum):
    """The kind of a file in a cache directory; the value is the name that users see."""

    CONTENT = "cache files"
    UNCAPTURED = "left on the node by a capture"
    """Packed by a build, whose user knows the machines: notes that only make a start faster, locks, and code for the
    processor of one machine."""
    ARTIFACTS = "files of artifacts"
    """Content if its bytes have the frame of one: the user chose the name."""
    INCOMPLETE = "incomplete or damaged kernels"
    UNMOVABLE = "kernels that cannot hit after a mount"
    PROGRAM = "pickles that a hit runs"
    LEFTOVER = "leftovers of interrupted programs"
    MACHINE = "facts of one machine or one rank"
    SECRET = "keys, tokens and passwords"  # noqa: S105 -- a name of files
    WEIGHTS = "weights of models"
    OTHER_CACHE = "caches of other runtimes"
    """A cache of another runtime in a subdirectory: the build packs it as a separate cache."""
    FOREIGN = "files that no runtime wrote as a cache"


PACKED: Final = frozenset({FileKind.CONTENT, FileKind.UNCAPTURED, FileKind.ARTIFACTS})


@dataclass(frozen=True, slots=True)
class Place:
    """A name pattern in a runtime's cache layout: what files, or directories, with such a name are."""

    name: re.Pattern[str]
    kind: FileKind | None = None
    """The kind of a file with this name; None if only directories have this name."""
    inside: tuple["Place", ...] | None = None
    """The layout of a directory with this name; None if only files have this name."""
    needs: tuple[re.Pattern[str], ...] | None = None
    """An entry stands here, and hits only with these: names in its directory, suffixes beside its file. Groups of a
    name are numbers of ranks: an entry has the files of several ranks, and all of them. None if no entry stands."""

    def suits(self, name: str, *, is_directory: bool) -> bool:
        """Return whether the pattern matches a file or directory of this name."""
        possible = self.inside is not None if is_directory else self.kind is not None
        return possible and self.name.fullmatch(name) is not None


Layout = tuple[Place, ...]


def file(pattern: str, kind: FileKind = FileKind.CONTENT, *, needs: Iterable[str] | None = None) -> Place:
    """Return the place (layout entry) of files whose whole name matches a pattern."""
    return Place(re.compile(pattern, re.ASCII), kind=kind, needs=_patterns(needs))


def folder(pattern: str, *inside: Place, needs: Iterable[str] | None = None) -> Place:
    """Return the place (layout entry) of directories whose whole name matches a pattern, with the places inside."""
    return Place(re.compile(pattern, re.ASCII), inside=inside, needs=_patterns(needs))


def nested(pattern: str, depth: int, *inside: Place) -> tuple[Place, ...]:
    """Return the layout of directories nested up to `depth` levels, each with the files `inside`."""
    return (*inside, folder(pattern, *nested(pattern, depth - 1, *inside))) if depth else inside


def _patterns(needs: Iterable[str] | None) -> tuple[re.Pattern[str], ...] | None:
    return None if needs is None else tuple(re.compile(each, re.ASCII) for each in needs)


def kind_of(layout: Iterable[Place], path: str, *, is_directory: bool) -> FileKind | None:
    """Return the kind of the file at a relative `path` with slashes; None if the layout does not have the path.

    A directory has the kind of its files if the layout has files of one kind there and no directories, else CONTENT.
    """
    found = place_of(layout, path, is_directory=is_directory)
    if found is None:
        return None
    return _kind_of_directory(found.inside or ()) if is_directory else found.kind


def place_of(layout: Iterable[Place], path: str, *, is_directory: bool) -> Place | None:
    """Return the place (layout entry) that matches a path; None if the layout does not have the path."""
    *directories, name = path.split("/")
    places = layout
    for each in directories:
        found = _place(places, each, is_directory=True)
        if found is None or found.inside is None:
            return None
        places = found.inside
    return _place(places, name, is_directory=is_directory)


def _kind_of_directory(inside: Layout) -> FileKind:
    kinds = {place.kind for place in inside}
    only = kinds.pop() if len(kinds) == 1 else None
    return only or FileKind.CONTENT


def _place(places: Iterable[Place], name: str, *, is_directory: bool) -> Place | None:
    return next((place for place in places if place.suits(name, is_directory=is_directory)), None)
