"""Which files of a directory an image gets, by their paths, and the account of the others."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gkm.runtimes import Runtime
from gkm.runtimes.layout import PACKED, FileKind, Place

MAX_EXAMPLES: Final = 5
_INSISTED: Final = frozenset(FileKind) - {
    *(FileKind.SECRET, FileKind.INCOMPLETE, FileKind.UNMOVABLE, FileKind.PROGRAM, FileKind.OTHER_CACHE)
}

KindOf = Callable[[str, bool], FileKind]
"""Returns the kind of the file at a path, relative and with slashes; the flag tells whether it is a directory."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The kind of each path, and the kinds that an image gets; `excluded` are paths that a look inside decided.

    `runtime` is the one whose table decides; None if absent.
    """

    kind: KindOf
    packed: frozenset[FileKind] = PACKED
    excluded: Mapping[str, FileKind] = field(default_factory=dict)
    runtime: Runtime | None = None

    def kind_of(self, path: str, *, is_directory: bool) -> FileKind:
        """Return the kind of a path."""
        return self.excluded.get(path) or self.kind(path, is_directory)

    def place_of(self, path: str, *, is_directory: bool) -> Place | None:
        """Return the place of a path in the layout of the runtime."""
        return self.runtime.place_of(path, is_directory=is_directory) if self.runtime else None

    def without(self, excluded: Mapping[str, FileKind]) -> "Selection":
        """Return the selection without further paths."""
        return replace(self, excluded={**self.excluded, **excluded})


EVERYTHING: Final = Selection(lambda _path, _is_directory: FileKind.CONTENT)


def of_runtime(runtime: Runtime, *, all_files: bool = False, inside: Container[str] = ()) -> Selection:
    """Return the selection of what a runtime writes; with `all_files` everything but secrets and damaged kernels.

    `inside` are the directories at its top that hold caches of other runtimes.
    """
    return Selection(_kind_of(runtime, inside), _INSISTED if all_files else PACKED, runtime=runtime)


def of_captured(runtime: Runtime, inside: Container[str] = ()) -> Selection:
    """Return the selection of what a runtime compiled and a pod left in its private layer."""
    return Selection(_kind_of(runtime, inside), frozenset({FileKind.CONTENT}), runtime=runtime)


def _kind_of(runtime: Runtime, inside: Container[str]) -> KindOf:
    def kind_of(path: str, is_directory: bool) -> FileKind:  # noqa: FBT001 -- KindOf
        kind = runtime.kind_of(path, is_directory=is_directory)
        return FileKind.OTHER_CACHE if kind is FileKind.FOREIGN and path.partition("/")[0] in inside else kind

    return kind_of


@dataclass(slots=True)
class LeftOutFiles:
    """The files and directories of one kind that stay out; `bytes` is the size of the files."""

    count: int = 0
    bytes: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LeftOut:
    """The files and directories that an image does not get, by kind. A directory is one item, with all its content."""

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
