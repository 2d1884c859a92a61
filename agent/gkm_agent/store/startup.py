"""The cleanup at a start: removes the remains of a killed agent and files without an owner.

It identifies the agent's own files by directory and name, and leaves all other files.
"""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gkm.hoststate import files, locks, trees
from gkm.hoststate.layout import Layout, ref_of_scope
from gkm.hoststate.logs import fields
from gkm.hoststate.names import InvalidName
from gkm.images.pulling.blob_files import BlobFiles

from gkm_agent.caches import approvals
from gkm_agent.store import catalog

_LOG = logging.getLogger(__name__)


def prepare(layout: Layout) -> None:
    """Create the directories, and remove stale files.

    The caller holds the agent's lock and uses the state only afterwards. Unnamed entries stay for the collector, which
    knows the wanted caches. A file that cannot be removed stays as well: it costs disk space, but an agent that does
    not start would cost every pod of the node its caches.

    Raises:
        OSError: a directory cannot be created.
    """
    layout.make_state_directories()
    try:
        layout.make_directories()
    except OSError as error:
        # In a pod, of `run` only the marks of waiting pods are writable: the CSI process makes the rest.
        if error.errno != errno.EROFS:
            raise
    for path in (*layout.work.iterdir(), *layout.trash.iterdir()):
        with _failure_logged():
            trees.remove(path)
    with _failure_logged():
        for path in (*files.temporaries(layout.catalog), *files.temporaries(layout.survey)):
            path.unlink(missing_ok=True)
    with _failure_logged():
        _clean_caches(layout)
    with _failure_logged():
        BlobFiles(layout.blobs).sweep()
    for directory in (layout.relocations, layout.locks):
        with _failure_logged():
            _remove_without_entries(layout, directory)


@contextmanager
def _failure_logged() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Stale files cost disk space only.
        _LOG.warning("removal of stale files failed", extra=fields(why=str(error)))


def _clean_caches(layout: Layout) -> None:
    for scope in _directories(layout.caches):
        for directory in _directories(scope):
            _clean_cache(directory, valid=_is_valid(scope.name, directory.name))
        files.remove_empty(scope)


def _clean_cache(directory: Path, *, valid: bool) -> None:
    """Remove temporary files, a check without its pointer, and the agent's files under an invalid name."""
    pointer, check = directory / "cache.json", directory / approvals.FILE
    stale = [*files.temporaries(pointer), *files.temporaries(check)]
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


def _remove_without_entries(layout: Layout, directory: Path) -> None:
    digests = catalog.digests_in(directory) if directory.is_dir() else set()
    for digest in sorted(digests):
        with _failure_logged():
            _remove_without_entry(layout, digest)


def _remove_without_entry(layout: Layout, digest: str) -> None:
    """Remove the relocated files and the lock file of a removed entry; a publish that comes too late creates a lock."""
    if layout.entry(digest).exists():
        return
    # A busy lock is that of a publish. No process creates an entry during the start, so the entry stays missing.
    with suppress(locks.LockBusy), locks.exclusive(layout.entry_lock(digest)):
        trees.remove(layout.relocated(digest))
        layout.entry_lock(digest).unlink(missing_ok=True)


def _directories(path: Path) -> list[Path]:
    return [child for child in path.iterdir() if child.is_dir() and not child.is_symlink()]
