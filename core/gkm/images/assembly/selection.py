"""Choose by path which files of a directory an image gets, and count the files that are left out."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gkm.runtimes import Runtime
from gkm.runtimes.layout import PACKED, FileKind, Place

MAX_EXAMPLES: Final = 5
_INSISTED: Final = frozenset(FileKind) - {
    *(FileKind.SECRET, FileKind.INCOMPLETE, FileKind.UNMOVABLE, FileKind.PROGRAM, FileKind.OTHER_CACHE)
}

KindOf = Callable[[str, bool], FileKind]
"""Returns the kind of the file at a relative path with slashes; the flag says whether the path is a directory."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files of a cache directory an image gets, by kind; `decided` are paths whose names do not tell the kind.

    `runtime` is the one whose table decides; None if absent.
    """

    kind: KindOf
    packed: frozenset[FileKind] = PACKED
    decided: Mapping[str, FileKind] = field(default_factory=dict)
    runtime: Runtime | None = None

    def kind_of(self, path: str, *, is_directory: bool) -> FileKind:
        """Return the kind of a file or directory in the cache."""
        return self.decided.get(path) or self.kind(path, is_directory)

    def place_of(self, path: str, *, is_directory: bool) -> Place | None:
        """Return the layout entry of a path in the runtime's cache; None if the layout does not have the path."""
        return self.runtime.place_of(path, is_directory=is_directory) if self.runtime else None

    def without(self, excluded: Mapping[str, FileKind]) -> "Selection":
        """Return a selection that gives further paths these kinds, so that they are not packed."""
        return replace(self, decided={**self.decided, **excluded})


EVERYTHING: Final = Selection(lambda _path, _is_directory: FileKind.CONTENT)


def of_runtime(runtime: Runtime, *, all_files: bool = False, inside: Container[str] = ()) -> Selection:
    """Return the selection of a runtime's own files in a cache directory.

    With `all_files` every file except secrets and damaged kernels. `inside` are the directories at its top that hold
    caches of other runtimes.
    """
    return Selection(_kind_of(runtime, inside), _INSISTED if all_files else PACKED, runtime=runtime)


def of_captured(runtime: Runtime, inside: Container[str] = (), kept: Iterable[str] = ()) -> Selection:
    """Return the selection of the files that a runtime compiled into a pod's private layer.

    `kept` are the files of the image that the capture extends: its builder chose them, and they stay.
    """
    decided = dict.fromkeys(with_directories(kept), FileKind.CONTENT)
    return Selection(_kind_of(runtime, inside), frozenset({FileKind.CONTENT}), decided, runtime)


def with_directories(paths: Iterable[str]) -> set[str]:
    """Return paths and the directories above them."""
    found: set[str] = set()
    for path in paths:
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]  # noqa: PLW2901 -- its parents
    return found


def _kind_of(runtime: Runtime, inside: Container[str]) -> KindOf:
    def kind_of(path: str, is_directory: bool) -> FileKind:  # noqa: FBT001 -- KindOf
        kind = runtime.kind_of(path, is_directory=is_directory)
        return FileKind.OTHER_CACHE if kind is FileKind.FOREIGN and path.partition("/")[0] in inside else kind

    return kind_of


@dataclass(slots=True)
class LeftOutFiles:
    """How many files and directories of one kind an image leaves out; `bytes` is the total size of the files."""

    count: int = 0
    bytes: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LeftOut:
    """The files and directories that an image leaves out, by kind. A directory is one item with all its content."""

    kinds: dict[FileKind, LeftOutFiles] = field(default_factory=dict)

    def add(self, path: str, kind: FileKind, size: int) -> None:
        """Count one file or directory; `size` in bytes, 0 for a directory."""
        if kind is FileKind.OTHER_CACHE:
            return
        found = self.kinds.setdefault(kind, LeftOutFiles())
        found.count += 1
        found.bytes += size
        if len(found.examples) < MAX_EXAMPLES:
            found.examples.append(path)
