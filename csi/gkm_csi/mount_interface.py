"""What publish and unpublish need of the machine, as they see it; gkm_csi.mounter does it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gkm.mounts.marks import Mark
from gkm.mounts.relocation.tree_limits import Uses
from gkm.mounts.relocation.tree_store import RelocationLayer


@dataclass(frozen=True, slots=True)
class TargetState:
    """A target as it is: `mounts` from the lowest to the one on top, None for one that is not ours.

    `empty` is of a directory on which nothing is mounted: nobody looks into what strangers mounted.
    """

    exists: bool
    empty: bool = True
    mounts: tuple[Mark | None, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesystemUsage:
    """Bytes and inodes of a file system."""

    bytes: int
    bytes_free: int
    inodes: int
    inodes_free: int


class MountInterface(Protocol):
    """Entries opened, targets made and removed, mounts made and taken away; each either done or an OSError."""

    def open_entry(self, digest: str) -> AbstractContextManager[int]:
        """Hold the directory of a store entry that pods see (a descriptor); FileNotFoundError without the entry."""

    def observe(self, path: Path) -> TargetState:
        """Return what is at a target; OSError where the way there is not one of real directories."""

    def make(self, path: Path) -> bool:
        """Make the directory of a target and return whether it was not there."""

    def open_relocated(
        self, entry: int, digest: str, layer: RelocationLayer, in_use: Callable[[], Uses]
    ) -> AbstractContextManager[int]:
        """Hold the tree that goes on top of an entry (a descriptor), made where it is missing; see relocation."""

    def mount(self, layers: Sequence[int], path: Path, mark: Mark, private_bytes: int | None) -> None:
        """Mount layers on a target that exists: read-only, or with a private layer of so many bytes on top."""

    def open_mounted(self, path: Path) -> AbstractContextManager[int]:
        """Hold what a target shows, without what is mounted inside (a descriptor); OSError where there is none."""

    def filesystem_usage(self, path: Path) -> FilesystemUsage:
        """Return how full the file system is that a target shows; OSError where there is none."""

    def unmount(self, path: Path) -> int:
        """Take away every mount on a target and return how many there were; idempotent; StillMounted without end."""

    def remove(self, path: Path) -> bool:
        """Remove the directory of a target and return whether it is gone; idempotent, never recursive."""
