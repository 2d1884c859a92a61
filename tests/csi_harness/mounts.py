"""Mounts in memory, behind the Protocol that publish and unpublish use, which fail on request."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gkm.mounts.marks import Mark
from gkm_csi.mounting import Spot


@dataclass
class MountsInMemory:
    """`directories` are the targets that exist; `fails` names the call that raises `error`."""

    fails: str = ""
    error: Exception = field(default_factory=lambda: OSError(28, "No space left on device", "/secret/path"))
    directories: set[Path] = field(default_factory=set)
    mounted: dict[Path, list[Mark | None]] = field(default_factory=dict)
    foreign: set[Path] = field(default_factory=set)

    @contextmanager
    def entry(self, digest: str) -> Iterator[int]:
        self._fail("entry")
        assert digest
        yield 1

    def look(self, path: Path) -> Spot:
        self._fail("look")
        mounts = tuple(self.mounted.get(path, ()))
        return Spot(path in self.directories, path not in self.foreign, mounts)

    def make(self, path: Path) -> bool:
        self._fail("make")
        made = path not in self.directories
        self.directories.add(path)
        return made

    def mount(self, entry: int, path: Path, mark: Mark) -> None:
        self._fail("mount")
        assert entry == 1
        assert path in self.directories
        self.mounted.setdefault(path, []).append(mark)

    def unmount(self, path: Path) -> int:
        self._fail("unmount")
        return len(self.mounted.pop(path, ()))

    def remove(self, path: Path) -> bool:
        self._fail("remove")
        assert path not in self.mounted
        self.directories.discard(path)
        return True

    def _fail(self, call: str) -> None:
        if call == self.fails:
            raise self.error
