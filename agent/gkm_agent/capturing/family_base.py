"""The base of a captured image: the family member that the node's pods mount, joined with the captured files.

The pod saw its own files over the files of its cache, so both have the same paths. If both have a file, the union keeps
the file of the base, because its signer vouched for that file. The files are hard links, so a union takes no space.

Torch names a graph by its key and by the hash of its content, which has the time that its compilation took: two pods
never write the same one. Torch loads all graphs of a key until one suits. So where both have a key, the graphs of the
generation stay, and no pod adds a graph to those.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from gkm.api.capture_settings import CapturedCaches
from gkm.api.errors import GKMError, Reason
from gkm.hoststate import families, locks, trees
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import CAPTURED_CONTENT, Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.images.pulling import entry, file_list
from gkm.images.pulling.extract import MAX_FILES
from gkm.images.reference import Reference
from gkm.runtimes.inductor import GRAPH_PATH

from gkm_agent.capturing.progress import CaptureOrigin
from gkm_agent.store import integrity

WORK: Final = ".union-"
_GRAPH: Final = re.compile(rf".*/(?:{GRAPH_PATH})", re.ASCII | re.DOTALL)


def family_of(origin: CaptureOrigin, settings: CapturedCaches) -> CacheRef | None:
    """Return the family that the image of a capture becomes a member of; None if it joins no family.

    Captures of a namespace are either GKMCaches of it or ClusterGKMCaches: caches of the other kind are not joined.
    """
    cluster = settings.are_for_cluster(origin.pod_namespace)
    if not origin.family or cluster is not (origin.cache_namespace is None):
        return None
    return CacheRef(None if cluster else origin.pod_namespace, origin.family)


def chosen_base(layout: Layout, family: CacheRef) -> Reference | None:
    """Return the image, by digest, that this node mounts into new pods of a family; None without a Ready member.

    Raises:
        UnreadableState: the choice or the state of the cache is damaged.
    """
    pointer = families.chosen(layout, family)
    if pointer is None or pointer.state is not CacheState.READY or not pointer.digest:
        return None
    return Reference.parse(pointer.image).pinned(pointer.digest)


def files_in(layout: Layout, base: Reference) -> frozenset[str]:
    """Return the paths of the files in the base of a captured image.

    Raises:
        GKMError: NODE_ERROR, the store no longer has the entry, and the agent pulls it again.
    """
    try:
        with file_list.open_list(layout.entry(base.target) / entry.FILE_LIST) as (_, files):
            return frozenset(file.path for file in islice(files, MAX_FILES))
    except (FileNotFoundError, UnreadableState) as error:
        raise _lost(base) from error


@contextmanager
def union(
    layout: Layout, work: Path, base: Reference | None, throttle: integrity.Throttle = lambda _cost: None
) -> Iterator[Path]:
    """Yield a directory, `work`, with the captured files and the files of the base; without a base, the captured files.

    `work` lies in the directory of the capture. The next step uses it again; it is removed if this step fails. Each
    file of the base is first compared with the file list of the entry: an attestation must not describe damaged files.
    `throttle` is called with the cost of each piece, in bytes.

    Raises:
        GKMError: NODE_ERROR, the entry is missing from the store or damaged, or garbage collection holds it.
        OSError: a disk operation failed.
    """
    captured = work.with_name(CAPTURED_CONTENT)
    if base is None:
        yield captured
        return
    try:
        if not work.exists():
            _make(layout, work, base, throttle)
            _link(captured, work)
        yield work
    except BaseException as error:
        trees.remove(work)
        if isinstance(error, (locks.LockBusy, FileNotFoundError)):
            raise _lost(base) from error
        raise


def _make(layout: Layout, work: Path, base: Reference, throttle: integrity.Throttle) -> None:
    work.mkdir(0o700)
    with locks.shared(layout.entry_lock(base.target)):
        _check(layout, base, throttle)
        _link(layout.entry(base.target) / entry.CONTENT, work)


def _check(layout: Layout, base: Reference, throttle: integrity.Throttle) -> None:
    damage = integrity.check(layout, base.target, throttle)
    if damage is not None:
        raise GKMError(
            Reason.NODE_ERROR,
            f"{damage.path} of the entry {base.target}, which the capture extends, is damaged: {damage.cause}",
            f"touch {layout.check_request} on the node: the agent checks its store, and pulls the entry again",
        )


def _link(source: Path, target: Path) -> None:
    """Link what `target` lacks. Both sides stay unchanged meanwhile; links of a hostile pod are linked as links."""
    with os.scandir(source) as found:
        for one in found:
            inside = target / one.name
            if one.is_dir(follow_symlinks=False):
                may_grow = inside.is_dir() and not inside.is_symlink() and not _GRAPH.fullmatch(str(inside))
                if may_grow or not os.path.lexists(inside):
                    inside.mkdir(0o700, exist_ok=True)
                    _link(Path(one.path), inside)
            elif not os.path.lexists(inside):
                os.link(one.path, inside, follow_symlinks=False)


def _lost(base: Reference) -> GKMError:
    return GKMError(
        Reason.NODE_ERROR,
        f"the store of this node has no entry {base.target}, which the capture extends",
        "the agent pulls it again",
    )
