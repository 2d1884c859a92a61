"""Pointers: the state of each cache object on this node, written by the agent, read by the CSI process."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from gkm.hoststate import files, names
from gkm.hoststate.layout import Layout, ref_of_scope
from gkm.hoststate.names import CacheRef, InvalidName

GPU_LOST: Final = "GPULost"
"""As gkm.api.errors.Reason, which the CSI process does not import."""


class CacheState(StrEnum):
    """The state of a cache on this node (GKMCacheNode status.caches{}.state)."""

    PENDING = "Pending"
    DOWNLOADING = "Downloading"
    EXTRACTING = "Extracting"
    READY = "Ready"
    INCOMPATIBLE = "Incompatible"
    FAILED = "Failed"
    DELETING = "Deleting"


@dataclass(frozen=True, slots=True)
class Pointer:
    """The state of a cache object on this node.

    `digest` is the digest of the requested content. READY implies that its entry exists; in another state it may exist
    as well (a cache that became INCOMPATIBLE keeps its entry). `message` is one line for the events of a pod.
    `driver_version` is the GPU driver at the compatibility check, "" on a node without a GPU. `size_bytes` is the size
    of the extracted files, `progress` a percentage. `uid` is the uid of the object; "" without Kubernetes, and in
    pointers of versions that wrote no uid.
    """

    ref: CacheRef
    image: str
    state: CacheState
    digest: str = ""
    message: str = ""
    reason: str = ""
    progress: int = 0
    size_bytes: int = 0
    driver_version: str = ""
    updated: str = ""
    uid: str = ""

    @property
    def is_on_its_way(self) -> bool:
        """Return whether the cache will become Ready without a change by a user.

        A cache that is Pending for a reason, such as a registry that does not answer, does not. GPUs that cannot be
        read are no such reason: a driver is being upgraded.
        """
        if self.state is CacheState.PENDING:
            return self.reason in ("", GPU_LOST)
        return self.state in (CacheState.DOWNLOADING, CacheState.EXTRACTING)


def save(layout: Layout, pointer: Pointer) -> None:
    """Replace the pointer (state file) of a cache atomically and sync it to the disk."""
    files.replace(layout.pointer(pointer.ref), files.encode(_to_json(pointer)))


def load(layout: Layout, ref: CacheRef) -> Pointer | None:
    """Return the pointer (state file) of a cache, None if absent.

    Raises:
        UnreadableState: the file exists and cannot be used.
    """
    return files.load(layout.pointer(ref), lambda value: _from_json(ref, value))


def remove(layout: Layout, ref: CacheRef) -> None:
    """Remove the pointer (state file) of a cache; idempotent."""
    path = layout.pointer(ref)
    path.unlink(missing_ok=True)
    files.remove_empty(path.parent, levels=2)


def refs(layout: Layout) -> Iterator[CacheRef]:
    """Yield every cache that has a pointer; files that GKM did not make are skipped.

    Raises:
        OSError: a directory cannot be read, so the list would be incomplete.
    """
    return refs_with(layout, layout.pointer)


def refs_with(layout: Layout, file_of: Callable[[CacheRef], Path]) -> Iterator[CacheRef]:
    """Yield every cache for which `file_of` names an existing file; raises as `refs`."""
    for scope in files.names_in(layout.caches):
        try:
            cache_names = files.names_in(layout.caches / scope)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in cache_names:
            try:
                ref = ref_of_scope(scope, name)
            except InvalidName:
                continue
            if file_of(ref).exists():
                yield ref


def _to_json(pointer: Pointer) -> dict[str, Any]:
    return {
        "image": pointer.image,
        "state": pointer.state.value,
        "digest": pointer.digest,
        "message": pointer.message,
        "reason": pointer.reason,
        "progress": pointer.progress,
        "sizeBytes": pointer.size_bytes,
        "driverVersion": pointer.driver_version,
        "updated": pointer.updated,
        "uid": pointer.uid,
    }


def _from_json(ref: CacheRef, value: Mapping[str, Any]) -> Pointer:
    digest = str(value["digest"])
    if digest:
        names.digest(digest)
    return Pointer(
        ref=ref,
        image=str(value["image"]),
        state=CacheState(value["state"]),
        digest=digest,
        message=str(value["message"]),
        reason=str(value["reason"]),
        progress=int(value["progress"]),
        size_bytes=int(value["sizeBytes"]),
        driver_version=str(value["driverVersion"]),
        updated=str(value["updated"]),
        uid=str(value.get("uid", "")),
    )
