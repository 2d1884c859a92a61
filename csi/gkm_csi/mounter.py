"""What publish and unpublish do to the machine: entries opened, targets made, mounts made and taken away.

Nothing here decides; gkm.mounts knows the syscalls, this file knows where our things lie.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gkm.hoststate.layout import Layout
from gkm.mounts import beneath, mountinfo, overlay, targets, unmount
from gkm.mounts.marks import Mark, MarkedMount, mark_of, marked

from gkm_csi.mounting import Spot


class Mounter:
    """Mounts of one node: sources beneath the store, targets beneath kubelet's directory."""

    def __init__(self, layout: Layout, kubelet: Path) -> None:
        self._layout = layout
        self._kubelet = kubelet

    @contextmanager
    def entry(self, digest: str) -> Iterator[int]:
        """Hold the directory of a store entry that pods see; no link leads there.

        Raises:
            OSError: FileNotFoundError without the entry.
        """
        relative = self._layout.entry(digest).relative_to(self._layout.store) / "cache"
        with beneath.directory(self._layout.store, str(relative)) as descriptor:
            yield descriptor

    def look(self, path: Path) -> Spot:
        """Return what is at a target.

        Raises:
            OSError: the way there is not one of real directories, or the target is none.
        """
        with targets.opened(self._kubelet, path) as target:
            try:
                with target.held():
                    pass
            except FileNotFoundError:
                return Spot(exists=False)
            found = tuple(mark_of(mount) for mount in mountinfo.read() if mount.point == target.point)
            return Spot(exists=True, empty=target.is_empty(), mounts=found)

    def make(self, path: Path) -> bool:
        """Make the directory of a target and return whether it was not there.

        Raises:
            OSError: it cannot be made.
        """
        with targets.opened(self._kubelet, path) as target:
            return target.make()

    def mount(self, entry: int, path: Path, mark: Mark) -> None:
        """Mount an entry, read-only, on a target that exists.

        Raises:
            OSError: it cannot be mounted; nothing is.
        """
        with ExitStack() as held:
            empty = held.enter_context(beneath.directory(self._layout.state, self._layout.empty.name))
            target = held.enter_context(targets.opened(self._kubelet, path))
            overlay.mount_read_only((entry, empty), held.enter_context(target.held()), str(mark))

    def unmount(self, path: Path) -> int:
        """Take away every mount on a target and return how many there were; idempotent.

        Raises:
            OSError: the kernel refused.
            StillMounted: there is no end to them.
        """
        try:
            with targets.opened(self._kubelet, path) as target:
                return unmount.unmount_all(target.parent, target.name)
        except FileNotFoundError:
            return 0

    def remove(self, path: Path) -> bool:
        """Remove the directory of a target and return whether it is gone; idempotent, never recursive.

        Raises:
            OSError: it cannot be removed.
        """
        try:
            with targets.opened(self._kubelet, path) as target:
                return target.remove()
        except FileNotFoundError:
            return True

    def ours(self) -> list[MarkedMount]:
        """Return every mount of ours beneath kubelet's directory.

        Raises:
            OSError: mountinfo cannot be read.
        """
        root = str(self._kubelet.resolve())
        return [mount for mount in marked(mountinfo.read()) if mount.point.startswith(root + "/")]
