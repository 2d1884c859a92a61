"""What publish answers for the state that a cache is in (the table in the architecture, "Mounts").

Pure: pointers and records in, refusals out. Each sentence names cache, node and state and says what happens next.
"""

from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.relocation import UnderWay
from gkm.mounts.relocation_shares import AllInUse, TooMany
from gkm.mounts.relocation_tree import Unrelocatable

from gkm_csi.refusals import Code, Refusal
from gkm_csi.request import Publish

_RETRIES = "kubelet retries"
_MAX_MESSAGE = 500
"""Characters of an agent's message: a gRPC status travels in headers, which are limited to 8 KiB."""


def of_pointer(pointer: Pointer | None, ref: CacheRef, node: str, driver: str | None) -> Refusal | None:
    """Return why `ref` cannot be published now, None when it can.

    `driver` is the version of the GPU driver that is loaded now, None where none is.
    """
    if pointer is None:
        return _not_now(
            f"{ref} is not known on {node} yet: it does not exist ({_look_at(ref)}), is not verified, "
            f"or the agent has not come to it"
        )
    if pointer.state is CacheState.READY:
        return _of_ready(pointer, node, driver)
    return _of_unready(pointer, node)


def _of_unready(pointer: Pointer, node: str) -> Refusal:
    ref = pointer.ref
    what = f"{ref} is {pointer.state.value} on {node}"
    match pointer.state:
        case CacheState.PENDING:
            return _not_now(f"{what}{_why(pointer)}")
        case CacheState.DOWNLOADING | CacheState.EXTRACTING:
            return _not_now(f"{what}, {pointer.progress} %")
        case CacheState.INCOMPATIBLE:
            return _never(
                f"{what}{_why(pointer)}; use a node with a GPU that the cache was built for, or another cache"
            )
        case CacheState.FAILED:
            return _never(f"{what}{_why(pointer)}; see {_look_at(ref)}")
        case _:  # Deleting: the agent removes the pointer of a deleted object; what says so was not written by this one
            return _never(f"{what}: the object was deleted; create it again, or take the volume out of the pod")


def of_repeat(known: VolumeRecord, asked: Publish) -> Refusal | None:
    """Return why a volume that is published cannot be published so (CSI, "NodePublishVolume"); None for a repeat."""
    if known.target_path != str(asked.place.target):
        return Refusal(
            Code.FAILED_PRECONDITION,
            f"volume {known.volume_id} is published at another target already; unpublish it there first",
        )
    same_pod = (known.pod_name, known.pod_namespace, known.pod_uid) == (
        asked.pod.name,
        asked.pod.namespace,
        asked.pod.uid,
    )
    if known.ref != asked.ref or known.options != asked.options or not same_pod:
        return Refusal(
            Code.ALREADY_EXISTS,
            f"volume {known.volume_id} is published already, for another pod, another cache or with other attributes; "
            f"delete its pod first",
        )
    return None


def collected(ref: CacheRef, node: str) -> Refusal:
    """Return the refusal for an entry that garbage collection looks at in this moment."""
    return Refusal(Code.ABORTED, f"{ref} on {node}: its files are locked by garbage collection; {_RETRIES}")


def without_entry(ref: CacheRef, node: str) -> Refusal:
    """Return the refusal for an entry that is not there although it should be."""
    return _not_now(
        f"{ref} on {node}: its files are not in the store (any more): the agent fetches them again; if this stays, "
        f"restart the agent on {node}"
    )


def not_prepared(ref: CacheRef, node: str, error: Exception) -> Refusal:
    """Return the refusal for a cache on top of which nothing can be put: `error` is what relocation raised."""
    what = f"{ref} on {node}"
    match error:
        case UnderWay():
            return Refusal(Code.ABORTED, f"{what}: its paths are being rewritten for another pod; {_RETRIES}")
        case TooMany():
            return _never(f"{what}: {error}")
        case AllInUse():
            return _not_now(f"{what}: {error}: it is mounted when one of them is free, or at a path that is in use")
        case Unrelocatable():
            return _never(f"{what} cannot be mounted with mountPath or with a private layer: {error}")
        case _:
            why = error.strerror if isinstance(error, OSError) else type(error).__name__
            return _not_now(f"{what}: the files for its mount path cannot be written ({why})")


def unreadable(ref: CacheRef, node: str) -> Refusal:
    """Return the refusal for a pointer that is damaged."""
    return _not_now(f"{ref} on {node}: its state file is damaged; restart the agent on {node}, which writes it anew")


def _of_ready(pointer: Pointer, node: str, driver: str | None) -> Refusal | None:
    if not pointer.digest:
        return unreadable(pointer.ref, node)
    if driver is not None and driver != pointer.driver_version:
        checked = f"with driver {pointer.driver_version}" if pointer.driver_version else "without a GPU driver"
        return _not_now(
            f"{pointer.ref} was checked on {node} {checked}, and driver {driver} is loaded now: the agent is "
            f"checking it again"
        )
    return None


def _not_now(text: str) -> Refusal:
    return Refusal(Code.UNAVAILABLE, f"{text}; {_RETRIES}")


def _never(text: str) -> Refusal:
    return Refusal(Code.FAILED_PRECONDITION, text)


def _why(pointer: Pointer) -> str:
    parts = [pointer.reason, " ".join(pointer.message.split())[:_MAX_MESSAGE]]
    return "".join(f": {part}" for part in parts if part)


def _look_at(ref: CacheRef) -> str:
    if ref.namespace is None:
        return f"kubectl get clustergkmcache {ref.name}"
    return f"kubectl get gkmcache -n {ref.namespace} {ref.name}"
