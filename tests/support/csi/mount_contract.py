"""What publish and unpublish rely on in a MountInterface: one body for mounts in memory and for the kernel's.

Run as a program it checks one case with the real Mounter; the process is in a mount namespace of its own.
"""

import errno
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from gkm.mounts.mountinfo import Mark, MarkedMount
from gkm_csi.volumes.mount_interface import MountInterface, TargetState

FIRST, SECOND = Mark("csi-1", "sha256:00"), Mark("csi-2", "sha256:11")
SIZE = 1 << 20


def error_of(call: Callable[[], object]) -> int | None:
    """Return the error number of a call that the kernel refuses, None if it succeeds."""
    try:
        call()
    except OSError as error:
        return error.errno
    return None


def a_target_is_made_and_removed(mounts: MountInterface, target: Path) -> None:
    assert mounts.observe(target) == TargetState(exists=False)
    assert mounts.remove(target), "a missing target counts as removed"
    assert mounts.make(target)
    assert not mounts.make(target)
    assert mounts.observe(target) == TargetState(exists=True, empty=True)
    assert mounts.remove(target)
    assert mounts.observe(target) == TargetState(exists=False)


def mounts_stack_and_unmount_takes_all(mounts: MountInterface, target: Path) -> None:
    assert mounts.unmount(target) == 0
    mounts.make(target)
    assert mounts.unmount(target) == 0
    mounts.mount((), target, FIRST, SIZE)
    mounts.mount((), target, SECOND, SIZE)
    assert mounts.observe(target).mounts == (FIRST, SECOND)
    assert mounts.own_mounts() == [MarkedMount(str(target), mark) for mark in (FIRST, SECOND)]
    assert mounts.unmount(target) == 2
    assert mounts.own_mounts() == []
    assert mounts.observe(target) == TargetState(exists=True, empty=True)
    assert mounts.unmount(target) == 0


def a_mounted_target_is_not_removed(mounts: MountInterface, target: Path) -> None:
    mounts.make(target)
    mounts.mount((), target, FIRST, SIZE)
    assert not mounts.remove(target)
    assert mounts.observe(target).mounts == (FIRST,)
    mounts.unmount(target)
    assert mounts.remove(target)


def a_mount_needs_its_target(mounts: MountInterface, target: Path) -> None:
    assert error_of(lambda: mounts.mount((), target, FIRST, SIZE)) == errno.ENOENT
    assert mounts.observe(target) == TargetState(exists=False)


def the_usage_of_a_private_volume_is_that_of_its_layer(mounts: MountInterface, target: Path) -> None:
    assert error_of(lambda: mounts.filesystem_usage(target)) == errno.ENOENT
    mounts.make(target)
    mounts.mount((), target, FIRST, SIZE)
    usage = mounts.filesystem_usage(target)
    assert 0 < usage.f_bavail <= usage.f_blocks <= SIZE // usage.f_frsize
    assert 0 < usage.f_favail <= usage.f_files
    mounts.unmount(target)


def a_mounted_target_opens(mounts: MountInterface, target: Path) -> None:
    with ExitStack() as stack:
        assert error_of(lambda: stack.enter_context(mounts.open_mounted(target))) == errno.ENOENT
        mounts.make(target)
        mounts.mount((), target, FIRST, SIZE)
        assert stack.enter_context(mounts.open_mounted(target)).top > 0
    mounts.unmount(target)


CASES: dict[str, Callable[[MountInterface, Path], None]] = {
    case.__name__: case
    for case in (
        a_target_is_made_and_removed,
        mounts_stack_and_unmount_takes_all,
        a_mounted_target_is_not_removed,
        a_mount_needs_its_target,
        the_usage_of_a_private_volume_is_that_of_its_layer,
        a_mounted_target_opens,
    )
}


def main(name: str, root: Path) -> None:
    """Check one case with the real Mounter."""
    from gkm.hoststate.layout import Layout  # noqa: PLC0415 -- only the child needs them
    from gkm_csi.volumes.mounter import Mounter  # noqa: PLC0415

    layout = Layout(root / "state", root / "run")
    layout.make_directories()
    target = root / "kubelet" / "pods" / "p" / "mount"
    target.parent.mkdir(parents=True)
    CASES[name](Mounter(layout, root / "kubelet"), target)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
