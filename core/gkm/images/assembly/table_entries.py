"""Find the entries of a cache with the table of runtimes: for which GPUs they are, and which of them cannot hit.

The formats of MCV and TorchInductor have their own scanners. For all other runtimes the table has the places and the
needs of entries, and compiled code names the GPU.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

import msgspec

from gkm.api.errors import GKMError, Reason
from gkm.api.targets import CUDA, HIP, GpuTarget
from gkm.images.assembly.compiled_targets import target_of
from gkm.images.assembly.device_code import device_targets
from gkm.images.assembly.selection import Selection
from gkm.images.assembly.tree import TreeEntry
from gkm.runtimes import Runtime
from gkm.runtimes.cute_dsl import MLIR
from gkm.runtimes.layout import Place
from gkm.runtimes.triton import ELF

_BEGINS: Final = {".cubin": ELF, ".so": ELF, ".o": ELF, ".mlir": MLIR}
"""The first bytes of files of code."""
_MAY_BE_EMPTY: Final = (".lock", ".committed")
_JSON: Final = (".json", ".best_config")
"""A process that was killed may leave the beginning of one, which a program reads as an error and not as a miss."""
MAX_JSON_BYTES: Final = 4 << 20
"""Results of tuning have some 100 KiB."""
_CUDA_NAME: Final = re.compile(r"sm([0-9]{2,3})[af]?", re.ASCII)
_HIP_NAME: Final = re.compile(r"gfx[0-9a-f]{3,4}", re.ASCII)


@dataclass(slots=True)
class TableScan:
    """Collects the entries of a cache whose runtime is in the table of runtimes, and the GPUs of their code."""

    selected: Selection
    paths: dict[str, None] = field(default_factory=dict)
    targets: set[GpuTarget] = field(default_factory=set)

    def add(self, entry: TreeEntry) -> None:
        """Scan one file or directory of a cache in constant memory; raises the errors of reading it."""
        place = self.selected.place_of(entry.path, is_directory=entry.directory)
        if place and place.needs is not None:
            self.paths[entry.path] = None
            self.targets.update(_named(entry.path))
        parent = entry.path.rpartition("/")[0]
        if (
            not entry.directory
            and _suffix(entry.name) in _BEGINS
            and not self.paths.keys().isdisjoint({entry.path, parent})
        ):
            self.targets |= device_targets(entry.pieces())

    def listed(self, runtime: Runtime) -> list[dict[str, str]]:
        """Return the entries of a runtime's cache for manifest.json.

        Raises:
            GKMError: METADATA_MISSING if no entry is complete.
        """
        if self.paths:
            return [{"form": runtime.name, "hash": path} for path in self.paths]
        why = f" after a mount: {runtime.unmovable}" if runtime.unmovable else ""
        raise GKMError(
            Reason.METADATA_MISSING,
            f"the cache of {runtime.title} has no complete entry that another pod could use{why}",
            "compile in the pod, or build the caches of the other runtimes; "
            "docs/reference/formats.md says what can move",
        )


def check_versions(runtime: Runtime, stated: Iterable[str]) -> None:
    """Refuse a cache if its keys lack the version of a program and the user has not `stated` that version.

    Raises:
        GKMError: METADATA_MISSING.
    """
    if missing := [name for name in runtime.versions if name not in set(stated)]:
        raise GKMError(
            Reason.METADATA_MISSING,
            f"the cache keys of {runtime.title} do not have the versions of {', '.join(missing)}: "
            "programs of other versions would hit too",
            f"state them: {' '.join(f'--dependency-version {name}=VERSION' for name in missing)}",
        )


def _named(path: str) -> Iterable[GpuTarget]:
    """Yield the GPUs that directories name."""
    for part in path.split("/")[:-1]:
        if found := _CUDA_NAME.fullmatch(part):
            yield target_of(CUDA, found[1])
        elif _HIP_NAME.fullmatch(part):
            yield target_of(HIP, part)


def _suffix(name: str) -> str:
    return f".{name.rpartition('.')[2]}"


@dataclass(slots=True)
class EntryCheck:
    """Finds entries of a cache that lack one of their files, by comparing the names in each directory."""

    selected: Selection
    problems: dict[str, str] = field(default_factory=dict)
    """What is wrong, by the path of the entry."""
    _names: dict[str, set[str]] = field(default_factory=dict)
    _suffixes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By directory and stem, of the directories that were asked for: a pod may leave 50,000 files in one."""
    _entries: dict[str, Place] = field(default_factory=dict)

    def add(self, entry: TreeEntry) -> None:
        """Check the first bytes of a file, or remember a directory; raises the errors of reading it."""
        parent, _, name = entry.path.rpartition("/")
        place = self.selected.place_of(entry.path, is_directory=entry.directory)
        if place and place.needs is not None:
            self._entries[entry.path] = place
        self._names.setdefault(parent, set()).add(name)
        if entry.directory:
            return
        owner = next((path for path in (parent, entry.path) if path in self._entries), "")
        if owner and (problem := _problem(entry)):
            self.problems[owner] = problem

    def finish(self) -> dict[str, str]:
        """Return the entries that no program can use, by path, with what is wrong."""
        for path, place in self._entries.items():
            if place.needs and (problem := _lack(place.needs, self._names_of(path, place))):
                self.problems.setdefault(path, problem)
        return self.problems

    def _names_of(self, path: str, place: Place) -> list[str]:
        """Return the names in the directory of an entry, or the suffixes beside its file."""
        if place.inside is not None:
            return sorted(self._names.get(path, ()))
        parent, _, name = path.rpartition("/")
        if parent not in self._suffixes:
            self._suffixes[parent] = {}
            for each in sorted(self._names[parent]):
                self._suffixes[parent].setdefault(each.rpartition(".")[0], []).append(_suffix(each))
        return self._suffixes[parent][name.rpartition(".")[0]]


def _lack(needs: Iterable[re.Pattern[str]], names: Sequence[str]) -> str:
    for needed in needs:
        found = [match for match in map(needed.fullmatch, names) if match]
        if not found:
            return f"no file is there that matches {needed.pattern}"
        if needed.groups and not _has_all_ranks([match.groups() for match in found]):
            return "the files of some ranks are missing, or only rank 0 has one"
    return ""


def _has_all_ranks(found: list[tuple[str, ...]]) -> bool:
    """Return whether numbers of ranks are several, without a gap."""
    ranks = {tuple(map(int, each)) for each in found}
    return len(ranks) > 1 and len(ranks) == prod(max(axis) + 1 for axis in zip(*ranks, strict=True))


def _problem(entry: TreeEntry) -> str:
    if not entry.size:
        return "" if entry.name.endswith(_MAY_BE_EMPTY) else f"{entry.name} is empty"
    if entry.name.endswith(_JSON) and entry.size > MAX_JSON_BYTES:
        return f"{entry.name} has more than {MAX_JSON_BYTES} bytes"
    if entry.name.endswith(_JSON):
        return "" if _is_json(entry) else f"{entry.name} is no complete JSON"
    begin = _BEGINS.get(_suffix(entry.name), b"")
    return "" if entry.head(len(begin)) == begin else f"{entry.name} is no compiled code"


def _is_json(entry: TreeEntry) -> bool:
    try:
        # The text is parsed, and no value of it becomes an object.
        msgspec.json.decode(entry.read(), type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
