"""Mounts in memory, behind the Protocol that publish and unpublish use, which fail on request."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gkm.mounts.link_farm import MountedView
from gkm.mounts.mountinfo import Mark, MarkedMount
from gkm.mounts.relocation.tree_limits import Uses
from gkm.mounts.relocation.tree_store import RelocationLayer
from gkm_csi.volumes.mount_interface import TargetState


@dataclass
class MountsInMemory:
    """`directories` are the targets that exist; `fails` names the call that raises `error`."""

    fails: str = ""
    error: Exception = field(default_factory=lambda: OSError(28, "No space left on device", "/secret/path"))
    directories: set[Path] = field(default_factory=set)
    mounted: dict[Path, list[Mark | None]] = field(default_factory=dict)
    foreign: set[Path] = field(default_factory=set)
    layers: dict[Path, tuple[Sequence[int], int | None]] = field(default_factory=dict)
    """What was mounted, and the bytes of the private layer."""
    farms: set[Path] = field(default_factory=set)
    """Where a volume was mounted for a user namespace."""

    @contextmanager
    def open_entry(self, digest: str) -> Iterator[int]:
        self._fail("entry")
        assert digest
        yield 1

    def observe(self, path: Path) -> TargetState:
        self._fail("look")
        mounts = tuple(self.mounted.get(path, ()))
        return TargetState(path in self.directories, path not in self.foreign, mounts)

    def own_mounts(self) -> list[MarkedMount]:
        return [MarkedMount(str(path), mark) for path, marks in self.mounted.items() for mark in marks if mark]

    def make(self, path: Path) -> bool:
        self._fail("make")
        made = path not in self.directories
        self.directories.add(path)
        return made

    @contextmanager
    def open_relocated(
        self, entry: int, digest: str, layer: RelocationLayer, in_use: Callable[[], Uses]
    ) -> Iterator[int]:
        self._fail("prepared")
        assert (entry, bool(digest)) == (1, True)
        assert layer.key in in_use().every
        yield 2

    def mount(
        self,
        layers: Sequence[int],
        path: Path,
        mark: Mark,
        private_bytes: int | None,
        *,
        user_namespace: bool = False,
    ) -> None:
        self._fail("mount")
        self._require(path)
        self.mounted.setdefault(path, []).append(mark)
        self.layers[path] = (layers, private_bytes)
        if user_namespace:
            self.farms.add(path)

    @contextmanager
    def open_mounted(self, path: Path, *, user_namespace: bool = False) -> Iterator[MountedView]:
        self._fail("mounted")
        self._require(path)
        assert user_namespace == (path in self.farms)
        yield MountedView(3)

    def filesystem_usage(self, path: Path) -> os.statvfs_result:
        self._fail("room")
        self._require(path)
        block, blocks, free, inodes, inodes_free = 10, 100, 40, 100, 90
        return os.statvfs_result((block, block, blocks, free, free, inodes, inodes_free, inodes_free, 0, 255))

    def unmount(self, path: Path) -> int:
        self._fail("unmount")
        return len(self.mounted.pop(path, ()))

    def remove(self, path: Path) -> bool:
        self._fail("remove")
        if self.mounted.get(path):
            return False
        self.directories.discard(path)
        return True

    def _require(self, path: Path) -> None:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    def _fail(self, call: str) -> None:
        if call == self.fails:
            raise self.error
