"""Clean up a node: stale files at each start, and all files of GKM on request (`gkm-agent --remove-state`).

At a start it removes the remains of a killed agent and files without an owner. It identifies the agent's own files by
directory and name, and leaves all other files.

The removal of everything comes after the other processes have ended. It removes no file while a volume is mounted: the
overlay of a running pod lies on the store. It removes only GKM's own files, by name: an administrator may have given
GKM a directory that has other files too.

The sockets of the CSI driver are part of it: they stay when that process ends, so that kubelet waits for the next one.
Without them kubelet takes the driver off its list, and the API server's CSINode and Node have no trace of it.
"""

import errno
import logging
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gkm.api.installation import DRIVER
from gkm.hoststate import files, locks, records, trees
from gkm.hoststate.layout import Layout, ref_of_scope
from gkm.hoststate.logs import fields
from gkm.hoststate.names import InvalidName
from gkm.images.pulling.blob_files import BlobFiles

from gkm_agent.caches import approvals
from gkm_agent.store import catalog

_LOG = logging.getLogger(__name__)
SHOWN = 20
"""Number of volumes or files that a message names."""
PREDECESSOR_SECONDS = 60.0
"""Seconds to wait for an ending agent or CSI driver: twice the grace period that the kubelet gives them."""


def prepare(layout: Layout) -> None:
    """Create the directories, and remove stale files; unfinished extractions go to the trash.

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
    with _failure_logged():
        for path in layout.work.iterdir():
            with _failure_logged():
                path.rename(layout.trash / f"work-{path.name}.{secrets.token_hex(4)}")
    with _failure_logged():
        for path in (*files.temporaries(layout.catalog), *files.temporaries(layout.survey)):
            path.unlink(missing_ok=True)
    with _failure_logged():
        _clean_caches(layout)
    with _failure_logged():
        BlobFiles(layout.blobs).sweep()
    for directory in (layout.relocations, layout.relocations_in_memory, layout.locks):
        with _failure_logged():
            _remove_without_entries(layout, directory)


@contextmanager
def _failure_logged() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # Stale files cost disk space only.
        _LOG.warning(
            "stale files not removed at the start of the agent, they cost disk space only", extra=fields(why=str(error))
        )


def _clean_caches(layout: Layout) -> None:
    for scope in _directories(layout.caches):
        for directory in _directories(scope):
            _clean_cache(directory, valid=_is_valid(scope.name, directory.name))
        files.remove_empty(scope)


def _clean_cache(directory: Path, *, valid: bool) -> None:
    """Remove temporary files, a check without its pointer, and all files under an invalid name."""
    pointer, check, family = directory / "cache.json", directory / approvals.FILE, directory / "family.json"
    stale = [leftover for path in (pointer, check, family) for leftover in files.temporaries(path)]
    if not valid:
        stale += [pointer, check, family]
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
    # A publish holds a busy lock. No process creates an entry during the start, so the entry stays missing.
    with suppress(locks.LockBusy), locks.exclusive(layout.entry_lock(digest)):
        for relocated in (layout.relocated(digest), layout.relocated_in_memory(digest)):
            trees.remove(relocated)
        layout.entry_lock(digest).unlink(missing_ok=True)


def _directories(path: Path) -> list[Path]:
    return [child for child in path.iterdir() if child.is_dir() and not child.is_symlink()]


class VolumesMounted(Exception):
    """Pods of this node still use volumes of GKM; the message names the volumes."""


class StillRunning(Exception):
    """A process of GKM still runs on this node; the message names it."""


def remove_state(layout: Layout, kubelet: Path, predecessor_seconds: float = PREDECESSOR_SECONDS) -> None:
    """Remove all files of GKM on this node, and its directories if they are empty then; idempotent.

    Raises:
        VolumesMounted: there are records of volumes.
        StillRunning: an agent or a CSI driver has not ended within `predecessor_seconds`.
        OSError: something cannot be removed.
    """
    with ExitStack() as stack:
        for process in ("agent", "csi"):
            try:
                stack.enter_context(locks.process_lock(layout.process_lock(process), predecessor_seconds))
            except locks.LockBusy as error:
                raise StillRunning(f"gkm-{process} runs on this node: delete its DaemonSet first") from error
        # Only now: a CSI driver that runs may mount another one.
        if volumes := sorted(_volumes(layout)):
            raise VolumesMounted(f"volumes are mounted ({len(volumes)}): {_some(volumes)}")
        (kubelet / "plugins_registry" / f"{DRIVER}-reg.sock").unlink(missing_ok=True)
        for path in (kubelet / "plugins" / DRIVER, *layout.owned, *files.temporaries(layout.catalog)):
            trees.remove(path)
        for directory in (layout.state, layout.run):
            files.remove_empty(directory)
            others = files.names_in(directory) if directory.is_dir() else []
            found = fields(others=_some(others)) if others else {}
            _LOG.info("GKM's files on this node removed", extra=fields(directory=str(directory)) | found)


def _volumes(layout: Layout) -> Iterator[str]:
    with suppress(FileNotFoundError):
        yield from records.volume_ids(layout)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
