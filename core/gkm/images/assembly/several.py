"""Find, scan and label the caches that go into one image, from the directories that the user names.

One cache is an image as MCV makes it. Several caches are several of these in one layer, with the labels of each
(docs/reference/formats.md).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.hoststate.escaping import escape
from gkm.images.assembly.contents import CacheContents, scan_cache, scan_directory
from gkm.images.assembly.damage import captured_selection
from gkm.images.assembly.recognition import FoundCache, caches_in, runtime_of
from gkm.images.assembly.selection import LeftOut, Selection
from gkm.images.assembly.tree import TreeEntry
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import CACHES_LABEL, common_targets, entry_label
from gkm.runtimes import BY_NAME, VLLM
from gkm.runtimes.foreign import foreign_kind
from gkm.runtimes.layout import FileKind
from gkm.runtimes.placement import joined

MAX_TEXT: Final = 63
"""Limit of the length of the joined runtime names in a capture: they become the value of a label."""


@dataclass(frozen=True, slots=True)
class ScannedCaches:
    """The scanned caches for one image, in the order of the table of runtimes."""

    caches: list[CacheContents]
    beside: LeftOut = field(default_factory=LeftOut)
    """Other files and directories beside caches, in a directory that is no cache itself."""


def scan_caches(
    directories: Sequence[Path],
    stated: Sequence[GpuTarget],
    versions: DependencyVersions,
    *,
    all_files: bool = False,
    strict: bool = False,
) -> ScannedCaches:
    """Scan the directories; each is one cache, or holds caches in subdirectories that are named after their runtimes.

    Raises:
        GKMError: METADATA_MISSING when a directory holds no cache, METADATA_INVALID when two are of one runtime or the
        GPUs
            differ; as `scan_cache`.
        OSError: a directory cannot be read.
    """
    beside = LeftOut()
    found = [each for directory in directories for each in _found(directory, beside)]
    caches = _in_order(
        scan_cache(each.directory, stated, versions, all_files=all_files, strict=strict, inside=each.inside)
        for each in found
    )
    if not common_targets([cache.targets for cache in caches]):
        raise GKMError(
            Reason.METADATA_INVALID,
            f"the caches are for different GPUs: {', '.join(map(_built_for, caches))}",
            "build a separate image of each directory",
        )
    return ScannedCaches(caches, beside)


def _found(directory: Path, beside: LeftOut) -> list[FoundCache]:
    found = caches_in(directory)
    is_cache = any(each.directory == directory for each in found)
    if not is_cache and len(found) < 2:  # noqa: PLR2004 -- a single one is named by its own directory
        return [FoundCache(runtime_of(directory), directory)]
    if not is_cache:
        names = {each.directory.name for each in found}
        for path in sorted(path for path in directory.iterdir() if path.name not in names):
            size = 0 if path.is_dir() else path.lstat().st_size
            beside.add(path.name, foreign_kind(path.name) or FileKind.FOREIGN, size)
    return found


def _in_order(caches: Iterable[CacheContents]) -> list[CacheContents]:
    """Return the caches in the order of the table; raises METADATA_INVALID when two are of one runtime."""
    names = list(BY_NAME)
    ordered = sorted(caches, key=lambda cache: names.index(cache.format.value))
    for one, other in pairwise(ordered):
        if one.format is other.format:
            raise GKMError(
                Reason.METADATA_INVALID,
                f"{escape(str(one.directory))} and {escape(str(other.directory))} are both caches of "
                f"{BY_NAME[one.format.value].title}, which has one environment variable for its directory",
                "build a separate image of each directory",
            )
    return ordered


def _built_for(cache: CacheContents) -> str:
    gpus = " and ".join(dict.fromkeys(target.arch_name for target in cache.targets))
    return f"{cache.format.value} for {gpus}"


class CapturedPart(NamedTuple):
    """One directory of a capture that holds a cache, and the files that an image takes of it."""

    directory: Path
    selection: Selection


def captured_in(
    content: Path, kept: Collection[str] = (), check: Callable[[TreeEntry], None] = lambda _entry: None
) -> list[CapturedPart]:
    """Return the directories of a capture that may hold caches: its top, and subdirectories named after runtimes.

    `kept` are the files of the image that it extends, relative to `content`. `check` gets each file and directory
    before anything is read of it or kept.

    Raises:
        GKMError, OSError: as `walk` raises.
    """
    found = [each for each in caches_in(content) if each.runtime.captured]
    inside = [each for each in found if each.directory != content]
    # At the top the layout of vLLM has Triton's kernels too.
    own = next((each.runtime for each in found if each.directory == content), VLLM)
    names = tuple(each.directory.name for each in inside)
    of_top = [path for path in kept if path.partition("/")[0] not in names]
    parts = [(FoundCache(own, content, names), of_top), *((each, _below(each, kept)) for each in inside)]
    return [CapturedPart(part.directory, captured_selection(part, check, stays)) for part, stays in parts]


def _below(part: FoundCache, paths: Iterable[str]) -> list[str]:
    place = f"{part.directory.name}/"
    return [path.removeprefix(place) for path in paths if path.startswith(place)]


def scan_captured(content: Path, stated: Sequence[GpuTarget], kept: Collection[str] = ()) -> list[CacheContents]:
    """Scan a capture and return its caches; `stated` is the GPU of caches that name none, `kept` as in `captured_in`.

    A part that is no complete cache is left out while another part is one: the pod may have ended while it compiled.

    Raises:
        GKMError: as `scan_directory`, METADATA_MISSING when no part is a cache, METADATA_INVALID for too many runtimes.
        OSError: it cannot be read.
    """
    caches, missing = [], None
    for part in captured_in(content, kept):
        try:
            caches.append(_scan_part(part, stated))
        except GKMError as error:
            if error.reason is not Reason.METADATA_MISSING:
                raise
            missing = error
    if not caches and missing:
        raise missing
    names = joined(cache.format.value for cache in caches)
    if len(names) > MAX_TEXT:
        raise GKMError(
            Reason.METADATA_INVALID, f"the capture holds caches of more runtimes than one image can: {names}"
        )
    return _in_order(caches)


def _scan_part(part: CapturedPart, stated: Sequence[GpuTarget]) -> CacheContents:
    try:
        return scan_directory(part.directory, (), DependencyVersions(), part.selection)
    except GKMError as error:
        if error.reason is not Reason.METADATA_MISSING or len(stated) != 1:
            raise
        return scan_directory(part.directory, stated, DependencyVersions(), part.selection)


def image_labels(caches: Sequence[CacheContents]) -> dict[str, str]:
    """Return the labels of an image of these caches."""
    labels = {label: text for cache in caches for label, text in cache.labels.items()}
    if len(caches) > 1:
        labels[CACHES_LABEL] = joined(cache.format.value for cache in caches)
        for label in (cache.format.count_label for cache in caches):
            labels[label] = entry_label(labels[label], labels[CACHES_LABEL])
    return labels
