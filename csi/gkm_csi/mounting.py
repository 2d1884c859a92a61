"""What publish and unpublish need of the machine, as they see it; gkm_csi.mounter does it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gkm.mounts.marks import Mark


@dataclass(frozen=True, slots=True)
class Spot:
    """A target as it is: `mounts` from the lowest to the one on top, None for one that is not ours."""

    exists: bool
    empty: bool = True
    mounts: tuple[Mark | None, ...] = ()


class Mounting(Protocol):
    """Entries opened, targets made and removed, mounts made and taken away; each either done or an OSError."""

    def entry(self, digest: str) -> AbstractContextManager[int]:
        """Hold the directory of a store entry that pods see (a descriptor); FileNotFoundError without the entry."""

    def look(self, path: Path) -> Spot:
        """Return what is at a target; OSError where the way there is not one of real directories."""

    def make(self, path: Path) -> bool:
        """Make the directory of a target and return whether it was not there."""

    def mount(self, entry: int, path: Path, mark: Mark) -> None:
        """Mount an entry, read-only, on a target that exists."""

    def unmount(self, path: Path) -> int:
        """Take away every mount on a target and return how many there were; idempotent; StillMounted without end."""

    def remove(self, path: Path) -> bool:
        """Remove the directory of a target and return whether it is gone; idempotent, never recursive."""
