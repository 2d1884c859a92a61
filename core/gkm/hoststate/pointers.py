"""What a cache object points to on this node: written by the agent, read by the CSI process."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gkm.hoststate import files, names
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout, ref_of_scope
from gkm.hoststate.names import CacheRef, InvalidName


class CacheState(StrEnum):
    """How far a cache is on this node (design/api.md, status.caches{}.state)."""

    PENDING = "Pending"
    DOWNLOADING = "Downloading"
    EXTRACTING = "Extracting"
    READY = "Ready"
    INCOMPATIBLE = "Incompatible"
    FAILED = "Failed"
    DELETING = "Deleting"


@dataclass(frozen=True, slots=True)
class Pointer:
    """One cache object as this node sees it.

    `digest` is the digest that is meant. READY implies that its entry exists; in another state it may exist as well (a
    cache that became INCOMPATIBLE keeps its entry), or not yet. `message` is one line for the person who reads the
    pod's events. `driver_version` is the GPU driver that the verdict was reached with;
    empty on a node without a GPU. `size_bytes` is the size of the extracted files, `progress` a percentage. `uid` is
    that of the object; "" without Kubernetes, and in pointers that were written before there was a uid in them.
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


def save(layout: Layout, pointer: Pointer) -> None:
    """Replace the pointer of a cache, durably."""
    files.replace(layout.pointer(pointer.ref), files.encode(_to_json(pointer)))


def load(layout: Layout, ref: CacheRef) -> Pointer | None:
    """Return the pointer of a cache, None where the node knows none.

    Raises:
        UnreadableState: the file is there and cannot be used.
    """
    path = layout.pointer(ref)
    try:
        value = files.read_object(path)
    except FileNotFoundError:
        return None
    try:
        return _from_json(ref, value)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableState(f"{path}: {error}") from error


def remove(layout: Layout, ref: CacheRef) -> None:
    """Forget a cache; idempotent."""
    path = layout.pointer(ref)
    path.unlink(missing_ok=True)
    files.remove_empty(path.parent, levels=2)


def refs(layout: Layout) -> Iterator[CacheRef]:
    """Yield every cache that has a pointer; what we did not make is passed over.

    Raises:
        OSError: a directory cannot be read, so nobody can say which there are.
    """
    for scope in files.names_in(layout.caches):
        try:
            found = files.names_in(layout.caches / scope)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in found:
            try:
                ref = ref_of_scope(scope, name)
            except InvalidName:
                continue
            if layout.pointer(ref).exists():
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
