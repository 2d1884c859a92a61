"""Recognize the runtime whose cache a directory is, by the names in it, or find caches near it."""

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.escaping import escape
from gkm.images.assembly.artifact_file import HEAD_BYTES, is_artifact_file
from gkm.runtimes import INDUCTOR, RUNTIMES, Runtime
from gkm.runtimes.layout import Layout

_MAX_NAMES: Final = 20_000
"""The entries of one directory: a search for a cache near the named directory must end."""
_MAX_NEAR: Final = 8
_ANCESTORS: Final = 7
"""As many names as the deepest layout has above its files."""


@dataclass(frozen=True, slots=True)
class FoundCache:
    """A directory that holds a cache; `inside` are the directories at its top that hold caches of other runtimes."""

    runtime: Runtime
    directory: Path
    inside: tuple[str, ...] = ()


def caches_in(directory: Path) -> list[FoundCache]:
    """Return the cache in `directory`, and the caches in its subdirectories that are named after another runtime.

    The name alone is no proof: the directory must hold a cache of that runtime.

    Raises:
        OSError: a directory cannot be read.
    """
    own = runtime_in(directory)
    others = [runtime for runtime in RUNTIMES if not _has(own, runtime.name) and _is_cache(directory, runtime)]
    found = [FoundCache(runtime, directory / runtime.name) for runtime in others]
    return [FoundCache(own, directory, tuple(runtime.name for runtime in others)), *found] if own else found


def _has(own: Runtime | None, name: str) -> bool:
    """Return whether a directory of that name is a part of the cache itself, as `triton` of TorchInductor's is."""
    return own is not None and own.place_of(name, is_directory=True) is not None


def _is_cache(parent: Path, runtime: Runtime) -> bool:
    path = parent / runtime.name
    return not path.is_symlink() and path.is_dir() and _has_mark(path, runtime.marks)


def runtime_of(directory: Path) -> Runtime:
    """Return the runtime whose cache is in `directory`.

    Raises:
        GKMError: METADATA_MISSING if the directory holds no cache; the error names caches below or above it.
        OSError: it cannot be read.
    """
    if found := runtime_in(directory):
        return found
    near = [*_below(directory), *_above(directory)]
    titles = ", ".join(runtime.title for runtime in RUNTIMES)
    if not near:
        variables = ", ".join(variable for runtime in RUNTIMES for variable in runtime.variables)
        raise GKMError(
            Reason.METADATA_MISSING,
            f"{directory} holds no cache of {titles}",
            f"name the directory that one of {variables} pointed to while the kernels were compiled",
        )
    listed = ", ".join(f"{escape(str(path))} ({runtime.title})" for path, runtime in near[:_MAX_NEAR])
    raise GKMError(
        Reason.METADATA_MISSING,
        f"{directory} holds no cache of {titles} itself; near it are: {listed}",
        f"name that directory: gkm cache build {shlex.quote(escape(str(near[0][0])))} --image REF --dry-run",
    )


def runtime_in(directory: Path) -> Runtime | None:
    """Return the runtime whose cache is in `directory`; None if it holds no cache. Raises OSError."""
    marked = next((runtime for runtime in RUNTIMES if _has_mark(directory, runtime.marks)), None)
    # A file of artifacts has no name that tells.
    return INDUCTOR if marked is None and _has_artifact_file(directory) else marked


def _below(directory: Path) -> Iterator[tuple[Path, Runtime]]:
    """Yield the caches one level below that can be read, in the order of their names."""
    for name in sorted(name for name, is_directory in _names(directory) if is_directory):
        with suppress(OSError):
            if found := next((each for each in RUNTIMES if _has_mark(directory / name, each.marks)), None):
                yield directory / name, found


def _above(directory: Path) -> Iterator[tuple[Path, Runtime]]:
    """Yield the cache that contains the directory."""
    absolute = directory.absolute()
    for ancestor in islice(absolute.parents, _ANCESTORS):
        inside = absolute.relative_to(ancestor).parts
        for runtime in RUNTIMES:
            if _has_mark_inside(absolute, runtime.marks, inside):
                yield ancestor, runtime
                return


def _has_mark_inside(directory: Path, marks: Layout, inside: tuple[str, ...]) -> bool:
    """Return whether `directory` has a mark as the directory `inside` of a cache."""
    layouts = [marks]
    for name in inside:
        layouts = [
            place.inside
            for layout in layouts
            for place in layout
            if place.inside is not None and place.suits(name, is_directory=True)
        ]
    return any(_has_mark(directory, layout) for layout in layouts)


def _has_mark(directory: Path, marks: Layout) -> bool:
    return any(
        place.inside is None or _has_mark(directory / name, place.inside)
        for name, is_directory in _names(directory)
        for place in marks
        if place.suits(name, is_directory=is_directory)
    )


def _has_artifact_file(directory: Path) -> bool:
    return any(not is_directory and _is_artifact_file(directory / name) for name, is_directory in _names(directory))


def _is_artifact_file(path: Path) -> bool:
    with path.open("rb", buffering=0) as file:
        return is_artifact_file(file.read(HEAD_BYTES))


def _names(directory: Path) -> list[tuple[str, bool]]:
    """Return the names of files and directories, and whether each is a directory; links and others are left out."""
    with os.scandir(directory) as entries:
        return [
            (entry.name, entry.is_dir(follow_symlinks=False))
            for entry in islice(entries, _MAX_NAMES)
            if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
        ]
