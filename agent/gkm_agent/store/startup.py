"""The cleanup at a start: removes the remains of a killed agent and files without an owner.

It identifies the agent's own files by directory and name, and leaves all other files.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gkm.hoststate import files, locks, names
from gkm.hoststate.layout import Layout, ref_of_scope
from gkm.hoststate.logs import fields
from gkm.hoststate.names import InvalidName
from gkm.images.pulling.blob_files import BlobFiles
from gkm.images.pulling.entry import remove_tree
from gkm.mounts.relocation import tree_store

from gkm_agent.caches import approvals
from gkm_agent.store import catalog

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
_TEMPORARY = (".cache.json.*.tmp", ".check.json.*.tmp")
"""The temporary files of a write that a kill interrupted."""


def prepare(layout: Layout) -> None:
    """Create the directories, and remove stale files.

    The caller holds the agent's lock and uses the state only afterwards. Unnamed entries stay for the collector, which
    knows the wanted caches. A file that cannot be removed stays as well: it costs disk space, but an agent that does
    not start would cost every pod of the node its caches.

    Raises:
        OSError: a directory cannot be created.
    """
    layout.make_directories()
    for directory in (layout.work, layout.trash):
        for path in directory.iterdir():
            _log_failure(remove_tree, path)
    for step in (_remove_temporary, _clean_caches, _sweep_blobs, _remove_relocated, _remove_locks):
        _log_failure(step, layout)


def _log_failure(remove: Callable[[T], object], target: T) -> None:
    try:
        remove(target)
    except OSError as error:
        # Stale files cost disk space only.
        _LOG.warning("removal of stale files failed", extra=fields(why=str(error)))


def _remove_temporary(layout: Layout) -> None:
    for path in layout.state.glob(f".{catalog.FILE}.*.tmp"):
        path.unlink(missing_ok=True)


def _clean_caches(layout: Layout) -> None:
    for scope in _directories(layout.caches):
        for directory in _directories(scope):
            _clean_cache(directory, valid=_is_valid(scope.name, directory.name))
        files.remove_empty(scope)


def _clean_cache(directory: Path, *, valid: bool) -> None:
    """Remove temporary files, a check without its pointer, and the agent's files under an invalid name."""
    stale = [path for pattern in _TEMPORARY for path in directory.glob(pattern)]
    pointer, check = directory / "cache.json", directory / approvals.FILE
    if not valid:
        stale += [pointer, check]
    elif not pointer.exists():
        stale.append(check)
    for path in stale:
        if not path.is_dir():
            path.unlink(missing_ok=True)
    files.remove_empty(directory)


def _is_valid(scope: str, name: str) -> bool:
    try:
        ref_of_scope(scope, name)
    except InvalidName:
        return False
    return True


def _sweep_blobs(layout: Layout) -> None:
    BlobFiles(layout.blobs).sweep()


def _remove_relocated(layout: Layout) -> None:
    """Remove the relocated files of removed entries."""
    for digest in _digests(layout.state / "relocated"):
        _remove_without_entry(layout, digest, trees=True)


def _remove_locks(layout: Layout) -> None:
    """Remove the lock files of removed entries: a publish that comes too late creates one."""
    for digest in _digests(layout.state / "locks"):
        _remove_without_entry(layout, digest, trees=False)


def _remove_without_entry(layout: Layout, digest: str, *, trees: bool) -> None:
    if layout.entry(digest).exists():
        return
    try:
        with locks.exclusive(layout.entry_lock(digest)):
            # No process creates an entry during the start of an agent, so the entry stays missing.
            if trees:
                tree_store.remove(layout.relocated(digest))
            layout.entry_lock(digest).unlink(missing_ok=True)
    except locks.LockBusy:
        return


def _digests(directory: Path) -> list[str]:
    found = [f"sha256:{name}" for name in files.names_in(directory)] if directory.is_dir() else []
    return [digest for digest in found if names.is_digest(digest)]


def _directories(path: Path) -> list[Path]:
    return [child for child in path.iterdir() if child.is_dir() and not child.is_symlink()]
