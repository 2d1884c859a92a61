"""The caches that one image gets: found in the directories that a user names, scanned, and described by labels.

One cache is an image as MCV makes it. Several caches are several of these in one layer, with the labels of each
(docs/formats.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.api.targets import GpuTarget
from gkm.hoststate.escaping import escape
from gkm.images.assembly.contents import CacheContents, scan_cache
from gkm.images.assembly.recognition import FoundCache, caches_in, runtime_of
from gkm.images.assembly.selection import LeftOut
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.cache import CACHES_LABEL, common_targets, entry_label
from gkm.runtimes import RUNTIMES
from gkm.runtimes.foreign import foreign_kind
from gkm.runtimes.layout import FileKind
from gkm.runtimes.placement import joined


@dataclass(frozen=True, slots=True)
class ScannedCaches:
    """The caches of an image, in the order of the table of runtimes."""

    caches: list[CacheContents]
    beside: LeftOut = field(default_factory=LeftOut)
    """What stands beside the caches in a directory that is none itself."""


def scan_caches(
    directories: Sequence[Path],
    stated: Sequence[GpuTarget],
    versions: DependencyVersions,
    *,
    all_files: bool = False,
    strict: bool = False,
) -> ScannedCaches:
    """Return the caches in directories: each is one, or holds several in directories named by their runtimes.

    Raises:
        GKMError: METADATA_MISSING when a directory holds none, METADATA_INVALID when two are of one runtime or the GPUs
            differ; as `scan_cache`.
        OSError: one cannot be read.
    """
    beside = LeftOut()
    found = [each for directory in directories for each in _found(directory, beside)]
    found.sort(key=lambda each: RUNTIMES.index(each.runtime))
    _check_runtimes(found)
    caches = [
        scan_cache(each.directory, stated, versions, all_files=all_files, strict=strict, inside=each.inside)
        for each in found
    ]
    if not common_targets([cache.targets for cache in caches]):
        raise GKMError(
            Reason.METADATA_INVALID,
            f"the caches are for different GPUs: {', '.join(map(_built_for, caches))}",
            "build one image of each",
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


def _check_runtimes(found: Sequence[FoundCache]) -> None:
    for one, other in pairwise(found):
        if one.runtime is other.runtime:
            raise GKMError(
                Reason.METADATA_INVALID,
                f"{escape(str(one.directory))} and {escape(str(other.directory))} are both caches of "
                f"{one.runtime.title}, which has one variable for its directory",
                "build one image of each",
            )


def _built_for(cache: CacheContents) -> str:
    gpus = " and ".join(dict.fromkeys(target.arch_name for target in cache.targets))
    return f"{cache.format.value} for {gpus}"


def image_labels(caches: Sequence[CacheContents]) -> dict[str, str]:
    """Return the labels of an image of these caches."""
    labels = {label: text for cache in caches for label, text in cache.labels.items()}
    if len(caches) > 1:
        labels[CACHES_LABEL] = joined(cache.format.value for cache in caches)
        for label in (cache.format.count_label for cache in caches):
            labels[label] = entry_label(labels[label], labels[CACHES_LABEL])
    return labels
