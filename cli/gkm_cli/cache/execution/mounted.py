"""Mount a cache in a mount namespace of this process: others do not see it, and it ends with the last process in it."""

import os
from contextlib import ExitStack
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.files import closing
from gkm.images.pulling import entry
from gkm.mounts import overlay, safe_open, syscalls
from gkm.mounts.relocation import tree_store
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_store import RelocationLayer
from gkm.mounts.relocation.tree_writer import Unrelocatable

from gkm_cli.cache.execution.retries import retried_while_busy
from gkm_cli.cache.execution.run_store import RunStore


def can_mount() -> bool:
    """Return whether this process may mount, in a namespace of its own."""
    return os.geteuid() == 0 and not overlay.missing_features()


def mount(store: RunStore, digest: str, private_bytes: int | None) -> Path:
    """Enter a new mount namespace and return the path of the cache in it.

    It is read-only; with `private_bytes` it has a private layer of that size on top, in memory, which ends with it.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is not that of a cache.
        CommandFailed: another run takes too long.
        OSError: the kernel or the disk refused.
    """
    layout = store.layout
    point = store.mounts / layout.entry(digest).name
    point.mkdir(exist_ok=True)
    layer = RelocationLayer(MountPath(str(point)), is_writable=private_bytes is not None)
    # Before anything is opened: a layer must be in the namespace of the overlay (EINVAL otherwise).
    syscalls.enter_private_mounts()
    with ExitStack() as stack:
        relative = layout.entry(digest).relative_to(layout.state) / entry.CONTENT
        content = stack.enter_context(safe_open.open_directory(layout.state, str(relative)))
        tree = _relocated(content, layer, store.trees(digest))
        top = stack.enter_context(safe_open.open_directory(layout.state, str(tree.relative_to(layout.state))))
        empty = stack.enter_context(safe_open.open_directory(layout.state, layout.empty.name))
        target = stack.enter_context(closing(os.open(point, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)))
        if private_bytes is None:
            overlay.mount_read_only((top, content, empty), target, f"gkm-exec:{digest}")
        else:
            # One directory for all runs: what is mounted on it is in the namespace of one.
            scratch = layout.run / "layer"
            overlay.mount_private(
                (top, content, empty), target, f"gkm-exec:{digest}", scratch=scratch, size=private_bytes
            )
    return point


def _relocated(content: int, layer: RelocationLayer, trees: Path) -> Path:
    try:
        return retried_while_busy(lambda: tree_store.relocate(content, layer, trees))
    except Unrelocatable as error:
        raise GKMError(Reason.UNSAFE_CONTENT, f"the paths in the cache cannot be rewritten: {error}") from error
