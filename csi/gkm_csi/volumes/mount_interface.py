"""The mount operations that publish and unpublish need; gkm_csi.volumes.mounter implements them."""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gkm.mounts.link_farm import MountedView
from gkm.mounts.mountinfo import Mark, MarkedMount
from gkm.mounts.relocation.tree_limits import Uses
from gkm.mounts.relocation.tree_store import RelocationLayer


@dataclass(frozen=True, slots=True)
class TargetState:
    """The mounts at a target path, from the lowest to the topmost; None stands for a mount that GKM did not make.

    `empty` tells whether a directory without mounts is empty; a foreign mount is never read.
    """

    exists: bool
    empty: bool = True
    mounts: tuple[Mark | None, ...] = ()


class MountInterface(Protocol):
    """Opens entries, creates and removes target directories, mounts and unmounts; a failed operation raises OSError."""

    def open_entry(self, digest: str) -> AbstractContextManager[int]:
        """Yield a descriptor of the directory in a store entry that pods see.

        FileNotFoundError if the entry is missing.
        """

    def observe(self, path: Path) -> TargetState:
        """Return the state of a target path; OSError if the path leads through a link or a file."""

    def own_mounts(self) -> Sequence[MarkedMount]:
        """Return every mount of GKM beneath kubelet's directory, with the path that kubelet uses for it."""

    def make(self, path: Path) -> bool:
        """Create the directory at a target path; return whether it was missing."""

    def open_relocated(
        self, entry: int, digest: str, layer: RelocationLayer, in_use: Callable[[], Uses]
    ) -> AbstractContextManager[int]:
        """Yield a descriptor of the rewritten files for an entry; write them first if they are missing."""

    def mount(
        self,
        layers: Sequence[int],
        path: Path,
        mark: Mark,
        private_bytes: int | None,
        *,
        user_namespace: bool = False,
    ) -> None:
        """Mount layers at an existing target: read-only, or with a private layer of at most `private_bytes` on top.

        Raises:
            OSError: a system call failed.
            Unlinkable: the form for a user namespace is not possible for this cache.
        """

    def open_mounted(self, path: Path, *, user_namespace: bool = False) -> AbstractContextManager[MountedView]:
        """Yield the topmost mount at a target; OSError if the target has no mount."""

    def filesystem_usage(self, path: Path) -> os.statvfs_result:
        """Return the usage of the file system at a target; OSError without a target."""

    def unmount(self, path: Path) -> int:
        """Unmount all mounts at a target and return their number; idempotent."""

    def remove(self, path: Path) -> bool:
        """Remove the directory at a target; return whether it is gone; idempotent, never recursive."""
