"""Implement the mount operations of this node with gkm.mounts.

This module makes no decision; gkm.mounts knows the syscalls, this module knows the paths.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gkm.hoststate.files import closing
from gkm.hoststate.layout import Layout
from gkm.mounts import link_farm, mountinfo, overlay, safe_open, syscalls, targets
from gkm.mounts.link_farm import MountedView
from gkm.mounts.mountinfo import Mark, MarkedMount, mark_of, marked_mounts
from gkm.mounts.relocation import tree_store
from gkm.mounts.relocation.tree_limits import Uses
from gkm.mounts.relocation.tree_store import RelocationLayer

from gkm_csi.volumes.mount_interface import TargetState


@dataclass(frozen=True, slots=True)
class Mounter:
    """Mounts on one node: sources are in the store, targets are below kubelet's directory."""

    layout: Layout
    kubelet: Path

    @contextmanager
    def open_entry(self, digest: str) -> Iterator[int]:
        """Implement MountInterface.open_entry."""
        relative = self.layout.entry(digest).relative_to(self.layout.store) / "cache"
        with safe_open.open_directory(self.layout.store, str(relative)) as descriptor:
            yield descriptor

    @contextmanager
    def open_relocated(
        self, entry: int, digest: str, layer: RelocationLayer, in_use: Callable[[], Uses]
    ) -> Iterator[int]:
        """Implement MountInterface.open_relocated."""
        memory = self.layout.relocated_in_memory(digest)
        tree = tree_store.relocate(entry, layer, self.layout.relocated(digest), in_use, memory)
        root = self.layout.run if tree.is_relative_to(memory) else self.layout.state
        with safe_open.open_directory(root, str(tree.relative_to(root))) as descriptor:
            yield descriptor

    def observe(self, path: Path) -> TargetState:
        """Implement MountInterface.observe."""
        with targets.open_target(self.kubelet, path) as target:
            try:
                with target.open_directory():
                    pass
            except FileNotFoundError:
                return TargetState(exists=False)
            marks = tuple(mark_of(mount) for mount in mountinfo.read() if mount.point == target.point)
            return TargetState(exists=True, empty=bool(marks) or target.is_empty(), mounts=marks)

    def own_mounts(self) -> list[MarkedMount]:
        """Implement MountInterface.own_mounts."""
        root = self.kubelet.resolve()
        return [
            MarkedMount(str(self.kubelet / Path(mount.point).relative_to(root)), mount.mark)
            for mount in marked_mounts(mountinfo.read())
            if mount.point.startswith(f"{root}/")
        ]

    def make(self, path: Path) -> bool:
        """Implement MountInterface.make."""
        with targets.open_target(self.kubelet, path) as target:
            return target.make()

    def mount(
        self,
        layers: Sequence[int],
        path: Path,
        mark: Mark,
        private_bytes: int | None,
        *,
        user_namespace: bool = False,
    ) -> None:
        """Implement MountInterface.mount."""
        with ExitStack() as stack:
            empty = stack.enter_context(safe_open.open_directory(self.layout.state, self.layout.empty.name))
            target = stack.enter_context(targets.open_target(self.kubelet, path))
            point = stack.enter_context(target.open_directory())
            lowers = (*layers, empty)
            if private_bytes is None and not user_namespace:
                overlay.mount_read_only(lowers, point, str(mark))
                return
            scratch = stack.enter_context(self._scratch_directory(mark.owner))
            if user_namespace:
                link_farm.mount(lowers, point, str(mark), scratch=scratch, size=private_bytes)
            elif private_bytes is not None:
                overlay.mount_private(lowers, point, str(mark), scratch=scratch, size=private_bytes)

    @contextmanager
    def _scratch_directory(self, volume_id: str) -> Iterator[Path]:
        """Provide an empty directory in which to assemble a volume."""
        directory = self.layout.layers / volume_id
        directory.parent.mkdir(parents=True, exist_ok=True)  # a wiped /run lacks it
        self.remove_scratch(directory)
        directory.mkdir(0o700)
        try:
            yield directory
        finally:
            directory.rmdir()

    def remove_scratch(self, directory: Path) -> None:
        """Unmount and remove a scratch directory of a process that was killed; idempotent.

        Raises:
            OSError: a system call failed, or more mounts are stacked there than this driver makes.
        """
        with targets.open_target(self.layout.layers, directory) as target:
            target.unmount()
        if directory.exists():
            directory.rmdir()

    @contextmanager
    def open_mounted(self, path: Path, *, user_namespace: bool = False) -> Iterator[MountedView]:
        """Implement MountInterface.open_mounted."""
        with targets.open_target(self.kubelet, path) as target, target.open_directory() as point:
            if user_namespace:
                with link_farm.view(point) as view:
                    yield view
            else:
                with closing(syscalls.open_tree(point)) as clone:
                    yield MountedView(clone)

    def filesystem_usage(self, path: Path) -> os.statvfs_result:
        """Implement MountInterface.filesystem_usage."""
        with targets.open_target(self.kubelet, path) as target, target.open_directory() as point:
            return os.statvfs(point)

    def changed_ns(self, path: Path, name: str) -> int:
        """Return the time in nanoseconds at which the file `name` at the top of a target last changed.

        0 if it is missing.

        Raises:
            OSError: there is no such target.
        """
        with targets.open_target(self.kubelet, path) as target, target.open_directory() as point:
            try:
                return os.stat(name, dir_fd=point, follow_symlinks=False).st_mtime_ns
            except FileNotFoundError:
                return 0

    def unmount(self, path: Path) -> int:
        """Implement MountInterface.unmount."""
        try:
            with targets.open_target(self.kubelet, path) as target:
                return target.unmount()
        except FileNotFoundError:
            return 0

    def remove(self, path: Path) -> bool:
        """Implement MountInterface.remove."""
        try:
            with targets.open_target(self.kubelet, path) as target:
                return target.remove()
        except FileNotFoundError:
            return True
