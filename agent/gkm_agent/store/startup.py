"""What a killed agent leaves behind, and what belongs to nothing any more, removed when the next one starts.

Only what we made is touched, and it is known by its place and its name; what anybody else put there stays.
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
from gkm.mounts.relocation import tree_store as relocation

from gkm_agent.caches import approvals as checks
from gkm_agent.store import catalog as holdings

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
_HALVES = (".cache.json.*.tmp", ".check.json.*.tmp")
"""What a writer that was killed leaves of a file that it was about to replace."""


def prepare(layout: Layout) -> None:
    """Make the directories, and remove what is stale.

    Call it before anything else works on the state, and only while holding the agent's lock. Entries that nobody names
    are left for the collection, which knows what is wanted.

    What cannot be removed stays: it costs room, and an agent that does not start costs every pod of the node.

    Raises:
        OSError: the directories cannot be made.
    """
    layout.make_directories()
    for directory in (layout.work, layout.trash):
        for path in directory.iterdir():
            _log_failure(remove_tree, path)
    for step in (_remove_halves, _clean_caches, _sweep_blobs, _remove_relocated, _remove_locks):
        _log_failure(step, layout)


def _log_failure(remove: Callable[[T], object], what: T) -> None:
    try:
        remove(what)
    except OSError as error:
        # What is stale costs room, not truth: the agent works with it.
        _LOG.warning("stale files stay", extra=fields(why=str(error)))


def _remove_halves(layout: Layout) -> None:
    for half in layout.state.glob(f".{holdings.FILE}.*.tmp"):
        half.unlink(missing_ok=True)


def _clean_caches(layout: Layout) -> None:
    for scope in _directories(layout.caches):
        for directory in _directories(scope):
            _clean_cache(directory, known=_can_be(scope.name, directory.name))
        files.remove_empty(scope)


def _clean_cache(directory: Path, *, known: bool) -> None:
    """Remove halves of files, a check without its pointer, and all that is ours under a name that cannot be."""
    stale = [half for pattern in _HALVES for half in directory.glob(pattern)]
    pointer, check = directory / "cache.json", directory / checks.FILE
    if not known:
        stale += [pointer, check]
    elif not pointer.exists():
        stale.append(check)
    for path in stale:
        if not path.is_dir():
            path.unlink(missing_ok=True)
    files.remove_empty(directory)


def _can_be(scope: str, name: str) -> bool:
    try:
        ref_of_scope(scope, name)
    except InvalidName:
        return False
    return True


def _sweep_blobs(layout: Layout) -> None:
    BlobFiles(layout.blobs).sweep()


def _remove_relocated(layout: Layout) -> None:
    """Remove the rewritten files of entries that are gone."""
    for digest in _digests(layout.state / "relocated"):
        _remove_without_entry(layout, digest, trees=True)


def _remove_locks(layout: Layout) -> None:
    """Remove the locks of entries that are gone: a publish that came too late makes one anew."""
    for digest in _digests(layout.state / "locks"):
        _remove_without_entry(layout, digest, trees=False)


def _remove_without_entry(layout: Layout, digest: str, *, trees: bool) -> None:
    if layout.entry(digest).exists():
        return
    try:
        with locks.exclusive(layout.entry_lock(digest)):
            # Nobody makes an entry while an agent starts, so it is gone for good.
            if trees:
                relocation.remove(layout.relocated(digest))
            layout.entry_lock(digest).unlink(missing_ok=True)
    except locks.LockBusy:
        return


def _digests(directory: Path) -> list[str]:
    found = [f"sha256:{name}" for name in files.names_in(directory)] if directory.is_dir() else []
    return [digest for digest in found if names.is_digest(digest)]


def _directories(path: Path) -> list[Path]:
    return [one for one in path.iterdir() if one.is_dir() and not one.is_symlink()]
