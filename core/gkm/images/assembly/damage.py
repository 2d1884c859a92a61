"""Find the kernels of Triton that are incomplete or damaged: a node would ship them, and no process could use them.

Triton writes the files of a kernel one by one and the group file last, so a process that was killed, or a full disk,
leaves a directory that never hits. A file that lost its content fails the process that loads it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gkm.api import json_limits
from gkm.images.assembly.recognition import FoundCache
from gkm.images.assembly.selection import Selection, of_captured
from gkm.images.assembly.table_entries import EntryCheck
from gkm.images.assembly.tree import TreeEntry, walk
from gkm.images.assembly.triton import MAX_METADATA_BYTES
from gkm.runtimes.layout import FileKind
from gkm.runtimes.triton import ELF, ELF_SUFFIXES, GROUP, KERNEL


class _Group(msgspec.Struct):
    child_paths: dict[str, str] | list[str]


@dataclass(slots=True)
class _KernelDirectory:
    path: str
    names: set[str] = field(default_factory=set)
    children: set[str] = field(default_factory=set)
    problem: str = ""

    def add(self, entry: TreeEntry) -> None:
        self.names.add(entry.name)
        self.problem = self.problem or self._problem(entry)

    @property
    def verdict(self) -> str:
        """Return what is wrong with the kernel, once all its files are known."""
        if missing := sorted(self.children - self.names):
            return f"{missing[0][:100]} is missing, which the group file names"
        if self.problem:
            return self.problem
        metadata = any(name.endswith(".json") for name in self.names)
        alone = not metadata and not any(name.endswith(".so") for name in self.names)
        return "the metadata is missing" if alone else ""

    def _problem(self, entry: TreeEntry) -> str:
        if not entry.size:
            return f"{entry.name} is empty"
        if entry.name.endswith(ELF_SUFFIXES):
            return "" if entry.head(len(ELF)) == ELF else f"{entry.name} is no compiled code"
        if not entry.name.endswith(".json"):
            return ""
        return self._problem_of_json(entry)

    def _problem_of_json(self, entry: TreeEntry) -> str:
        if entry.size > MAX_METADATA_BYTES:
            return f"{entry.name} has more than {MAX_METADATA_BYTES} bytes"
        try:
            text = entry.read()
            json_limits.check(text)
            if entry.name.startswith(GROUP):
                self.children.update(msgspec.json.decode(text, type=_Group).child_paths)
            else:
                msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return f"{entry.name} is not what Triton writes"
        return ""


def damaged_kernels(directory: Path, selection: Selection) -> dict[str, str]:
    """Return the directories of incomplete or damaged kernels and entries, each with what is wrong.

    Raises:
        GKMError, OSError: as `walk` raises.
    """
    entries = EntryCheck(selection)
    kernels = {found.path: found.verdict for found in _kernels(directory, selection, entries) if found.verdict}
    return kernels | entries.finish()


def captured_selection(part: FoundCache, check: Callable[[TreeEntry], None], kept: Iterable[str] = ()) -> Selection:
    """Return the files to take from a capture, without entries that lack a file: such an entry may crash a program.

    Triton's kernels are not in the selection: a capture refuses one that is damaged. `check` gets each file and
    directory before anything is read of it or kept. `kept` as in `of_captured`.

    Raises:
        GKMError, OSError: as `walk` raises.
    """
    selection = of_captured(part.runtime, part.inside, kept)
    entries = EntryCheck(selection)
    for entry in walk(part.directory, selection):
        check(entry)
        entries.add(entry)
    return selection.without(dict.fromkeys(entries.finish(), FileKind.INCOMPLETE))


def _kernels(directory: Path, selection: Selection, others: EntryCheck) -> Iterator[_KernelDirectory]:
    """Yield the directories of kernels, each once it was read whole; `others` get all other files."""
    current: _KernelDirectory | None = None
    for entry in walk(directory, selection):
        parent = entry.path.rpartition("/")[0]
        if current and parent != current.path:
            yield current
            current = None
        if entry.directory:
            is_kernel = selection.place_of(entry.path, is_directory=True) is KERNEL
            current = _KernelDirectory(entry.path) if is_kernel else None
        if current and not entry.directory:
            current.add(entry)
        elif current is None:
            others.add(entry)
    if current:
        yield current
