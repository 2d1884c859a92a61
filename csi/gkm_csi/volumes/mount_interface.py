"""The mount operations that publish and unpublish need; gkm_csi.volumes.mounter implements them."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gkm.mounts.link_farm import MountedView
from gkm.mounts.mountinfo import Mark
from gkm.mounts.relocation.tree_limits import Uses
from gkm.mounts.relocation.tree_store import RelocationLayer


@dataclass(frozen=True, slots=True)
class TargetState:
    """The state of a target: `mounts` from the lowest to the topmost, None for a mount that is not ours.

    `empty` tells whether a directory without mounts is empty; a foreign mount is never read.
    """

    exists: bool
    empty: bool = True
    mounts: tuple[Mark | None, ...] = ()


class MountInterface(Protocol):
    """Open entries, make and remove targets, mount and unmount; each operation succeeds or raises an OSError."""

    def open_entry(self, digest: str) -> AbstractContextManager[int]:
        """Hold a descriptor of the directory of a store entry that pods see; FileNotFoundError without the entry."""

    def observe(self, path: Path) -> TargetState:
        """Return the state of a target; OSError if its path leads through a link or a file."""

    def make(self, path: Path) -> bool:
        """Make the directory of a target and return whether it was missing."""

    def open_relocated(
        self, entry: int, digest: str, layer: RelocationLayer, in_use: Callable[[], Uses]
    ) -> AbstractContextManager[int]:
        """Hold a descriptor of the tree on top of an entry, writing it where it is missing (gkm.mounts.relocation)."""

    def mount(
        self,
        layers: Sequence[int],
        path: Path,
        mark: Mark,
        private_bytes: int | None,
        *,
        user_namespace: bool = False,
    ) -> None:
        """Mount layers on an existing target: read-only, or with a private layer of `private_bytes` on top.

        Raises:
            OSError: a system call failed.
            Unlinkable: the form for a user namespace is not possible for this cache.
        """

    def open_mounted(self, path: Path, *, user_namespace: bool = False) -> AbstractContextManager[MountedView]:
        """Hold the view of the topmost mount of a target, without mounts of others; OSError without a mount."""

    def filesystem_usage(self, path: Path) -> os.statvfs_result:
        """Return the usage of the file system at a target; OSError without a target."""

    def unmount(self, path: Path) -> int:
        """Unmount all mounts of a target and return their number; idempotent."""

    def remove(self, path: Path) -> bool:
        """Remove the directory of a target and return whether it is gone; idempotent, never recursive."""
