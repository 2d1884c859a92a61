"""What publish and unpublish do to the machine: entries opened, targets made, mounts made and taken away.

Nothing here decides; gkm.mounts knows the syscalls, this file knows where our things lie.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gkm.hoststate.layout import Layout
from gkm.mounts import mountinfo, overlay, syscalls, targets, unmount
from gkm.mounts import safe_open as beneath
from gkm.mounts.marks import Mark, MarkedMount, mark_of, marked_mounts
from gkm.mounts.relocation import tree_store as relocation
from gkm.mounts.relocation.tree_limits import Uses
from gkm.mounts.relocation.tree_store import RelocationLayer

from gkm_csi.mount_interface import FilesystemUsage, TargetState


class Mounter:
    """Mounts of one node: sources beneath the store, targets beneath kubelet's directory."""

    def __init__(self, layout: Layout, kubelet: Path) -> None:
        self._layout = layout
        self._kubelet = kubelet

    @contextmanager
    def open_entry(self, digest: str) -> Iterator[int]:
        """Hold the directory of a store entry that pods see; no link leads there.

        Raises:
            OSError: FileNotFoundError without the entry.
        """
        relative = self._layout.entry(digest).relative_to(self._layout.store) / "cache"
        with beneath.open_directory(self._layout.store, str(relative)) as descriptor:
            yield descriptor

    @contextmanager
    def open_relocated(
        self, entry: int, digest: str, layer: RelocationLayer, in_use: Callable[[], Uses]
    ) -> Iterator[int]:
        """Hold the tree that goes on top of an entry; made where it is missing.

        Raises:
            UnderWay, TooMany, AllInUse, Unrelocatable, OSError: as relocation.relocate.
        """
        made = relocation.relocate(entry, layer, self._layout.relocated(digest), in_use)
        with beneath.open_directory(self._layout.state, str(made.tree.relative_to(self._layout.state))) as descriptor:
            yield descriptor

    def observe(self, path: Path) -> TargetState:
        """Return what is at a target.

        Raises:
            OSError: the way there is not one of real directories, or the target is none.
        """
        with targets.open_target(self._kubelet, path) as target:
            try:
                with target.open_directory():
                    pass
            except FileNotFoundError:
                return TargetState(exists=False)
            found = tuple(mark_of(mount) for mount in mountinfo.read() if mount.point == target.point)
            return TargetState(exists=True, empty=bool(found) or target.is_empty(), mounts=found)

    def make(self, path: Path) -> bool:
        """Make the directory of a target and return whether it was not there.

        Raises:
            OSError: it cannot be made.
        """
        with targets.open_target(self._kubelet, path) as target:
            return target.make()

    def mount(self, layers: Sequence[int], path: Path, mark: Mark, private_bytes: int | None) -> None:
        """Mount layers, the first on top, on a target that exists: read-only, or with a private layer over them.

        Raises:
            OSError: it cannot be mounted; nothing is.
        """
        with ExitStack() as held:
            empty = held.enter_context(beneath.open_directory(self._layout.state, self._layout.empty.name))
            target = held.enter_context(targets.open_target(self._kubelet, path))
            point = held.enter_context(target.open_directory())
            lowers = (*layers, empty)
            if private_bytes is None:
                overlay.mount_read_only(lowers, point, str(mark))
                return
            scratch = held.enter_context(self._scratch_directory(mark.owner))
            overlay.mount_private(lowers, point, str(mark), scratch=scratch, size=private_bytes)

    @contextmanager
    def _scratch_directory(self, volume_id: str) -> Iterator[Path]:
        """Give an empty directory to put the private layer of a volume together in."""
        directory = self._layout.layers / volume_id
        directory.parent.mkdir(parents=True, exist_ok=True)  # whoever wiped /run took it along
        self.remove_scratch(directory)
        directory.mkdir(0o700)
        try:
            yield directory
        finally:
            directory.rmdir()

    def leftover_scratch_directories(self) -> list[Path]:
        """Return what is left of private layers that a killed process put together."""
        return list(self._layout.layers.iterdir())

    def remove_scratch(self, directory: Path) -> None:
        """Take away what a killed process left; idempotent.

        Raises:
            OSError: the kernel refused.
            StillMounted: there is no end to it.
        """
        with beneath.open_directory(self._layout.layers, ".") as parent:
            unmount.unmount_all(parent, directory.name)
        if directory.exists():
            directory.rmdir()

    @contextmanager
    def open_mounted(self, path: Path) -> Iterator[int]:
        """Hold what a target shows, and nothing that a privileged pod mounted inside of it.

        Raises:
            OSError: there is none.
        """
        with targets.open_target(self._kubelet, path) as target, target.open_directory() as point:
            clone = syscalls.open_tree(point)
        try:
            yield clone
        finally:
            os.close(clone)

    def filesystem_usage(self, path: Path) -> FilesystemUsage:
        """Return how full the file system is that a target shows.

        Raises:
            OSError: there is none.
        """
        with targets.open_target(self._kubelet, path) as target, target.open_directory() as point:
            found = os.statvfs(point)
        size = found.f_frsize
        return FilesystemUsage(found.f_blocks * size, found.f_bavail * size, found.f_files, found.f_favail)

    def unmount(self, path: Path) -> int:
        """Take away every mount on a target and return how many there were; idempotent.

        Raises:
            OSError: the kernel refused.
            StillMounted: there is no end to them.
        """
        try:
            with targets.open_target(self._kubelet, path) as target:
                return unmount.unmount_all(target.parent, target.name)
        except FileNotFoundError:
            return 0

    def remove(self, path: Path) -> bool:
        """Remove the directory of a target and return whether it is gone; idempotent, never recursive.

        Raises:
            OSError: it cannot be removed.
        """
        try:
            with targets.open_target(self._kubelet, path) as target:
                return target.remove()
        except FileNotFoundError:
            return True

    def own_mounts(self) -> list[MarkedMount]:
        """Return every mount of ours beneath kubelet's directory, by the path that kubelet has for it.

        Raises:
            OSError: mountinfo cannot be read.
        """
        root = self._kubelet.resolve()
        return [
            MarkedMount(str(self._kubelet / Path(mount.point).relative_to(root)), mount.mark)
            for mount in marked_mounts(mountinfo.read())
            if mount.point.startswith(f"{root}/")
        ]
