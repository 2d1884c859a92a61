"""The errors of publish for each state of a cache (docs/design/volumes.md).

Pure: pointers and records in, errors out. Each message names cache, node and state, and says what happens next.
"""

from dataclasses import replace

from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.mounts.link_farm import Unlinkable
from gkm.mounts.relocation.tree_limits import AllInUse, TooMany
from gkm.mounts.relocation.tree_store import RelocationInProgress
from gkm.mounts.relocation.tree_writer import Unrelocatable

from gkm_csi.status_errors import Code, StatusError, failed_precondition
from gkm_csi.volumes.request import PublishRequest

_KUBELET_RETRIES = "kubelet retries"
_MAX_MESSAGE = 500
"""Characters of an agent's message: a gRPC status travels in headers, which are limited to 8 KiB."""


def usable_pointer(pointer: Pointer | None, ref: CacheRef, node: str, driver: str | None) -> Pointer:
    """Return `pointer` if a pod can mount the cache `ref` now.

    `driver` is the version of the loaded GPU driver, None if absent.

    Raises:
        StatusError: `ref` cannot be published now.
    """
    if pointer is None:
        raise _unavailable(
            f"{ref} is not known on {node} yet: it does not exist ({_kubectl_command(ref)}), is not verified, "
            f"or the agent has not processed it"
        )
    if pointer.state is not CacheState.READY:
        raise _unready_error(pointer, node)
    if not pointer.digest:
        raise pointer_unreadable(ref, node)
    if driver is not None and driver != pointer.driver_version:
        checked = f"with driver {pointer.driver_version}" if pointer.driver_version else "without a GPU driver"
        raise _unavailable(
            f"{ref} was checked on {node} {checked}, and driver {driver} is loaded now: the agent checks it again"
        )
    return pointer


def _unready_error(pointer: Pointer, node: str) -> StatusError:
    ref = pointer.ref
    subject = f"{ref} is {pointer.state.value} on {node}"
    match pointer.state:
        case CacheState.PENDING:
            return _unavailable(f"{subject}{_detail(pointer)}")
        case CacheState.DOWNLOADING | CacheState.EXTRACTING:
            return _unavailable(f"{subject}, {pointer.progress} %")
        case CacheState.INCOMPATIBLE:
            return failed_precondition(
                f"{subject}{_detail(pointer)}; use a node with a GPU that the cache was built for, or another cache"
            )
        case CacheState.FAILED:
            return failed_precondition(f"{subject}{_detail(pointer)}; see {_kubectl_command(ref)}")
        case _:  # Deleting: this agent removes the pointer of a deleted object, so another version wrote this one
            return failed_precondition(
                f"{subject}: the object was deleted; create it again, or remove the volume from the pod"
            )


def check_repeat(record: VolumeRecord, request: PublishRequest) -> None:
    """Check that a repeated publish request equals the first one for this volume.

    Raises:
        StatusError: the request conflicts with the volume (CSI, "NodePublishVolume").
    """
    if record.target_path != str(request.volume.target):
        raise failed_precondition(
            f"volume {record.volume_id} is already published at another target; unpublish it there first"
        )
    same_pod = (record.pod_name, record.pod_namespace, record.pod_uid) == (
        request.pod.name,
        request.pod.namespace,
        request.pod.uid,
    )
    accepted = {replace(request.options, capture=False), *request.in_any_mode}
    same_options = replace(record.options, capture=False) in accepted
    if record.requested != request.ref or not same_options or not same_pod:
        raise StatusError(
            Code.ALREADY_EXISTS,
            f"volume {record.volume_id} is already published for another pod, another cache or with other attributes; "
            f"delete its pod first",
        )


def entry_locked(ref: CacheRef, node: str) -> StatusError:
    """Return the error for an entry that garbage collection has locked."""
    return StatusError(Code.ABORTED, f"{ref} on {node}: its files are locked by garbage collection; {_KUBELET_RETRIES}")


def entry_missing(ref: CacheRef, node: str) -> StatusError:
    """Return the error for an entry that is missing from the store."""
    return _unavailable(
        f"{ref} on {node}: its files are missing from the store: the agent pulls them again; if this persists, "
        f"restart the agent on {node}"
    )


def relocation_error(ref: CacheRef, node: str, error: Exception) -> StatusError:
    """Return the error for a cache whose relocation raised `error`."""
    subject = f"{ref} on {node}"
    match error:
        case RelocationInProgress():
            return StatusError(
                Code.ABORTED, f"{subject}: its paths are being rewritten for another pod; {_KUBELET_RETRIES}"
            )
        case TooMany():
            return failed_precondition(f"{subject}: {error}")
        case AllInUse():
            return _unavailable(f"{subject}: {error}: it can be mounted when one of them is free, or at a path in use")
        case Unrelocatable():
            return failed_precondition(f"{subject} cannot be mounted with mountPath or with a private layer: {error}")
        case _:
            reason = error.strerror if isinstance(error, OSError) else type(error).__name__
            return _unavailable(f"{subject}: the files for its mount path cannot be written ({reason})")


def unlinkable(ref: CacheRef, node: str, error: Unlinkable) -> StatusError:
    """Return the error for a cache that cannot be mounted for a user namespace."""
    return failed_precondition(f"{ref} on {node}: {error}; run the pod without hostUsers: false, or rebuild the cache")


def pointer_unreadable(ref: CacheRef, node: str) -> StatusError:
    """Return the error for a damaged pointer."""
    return _unavailable(f"{ref} on {node}: its state file is damaged; restart the agent on {node}, which rewrites it")


def _unavailable(text: str) -> StatusError:
    return StatusError(Code.UNAVAILABLE, f"{text}; {_KUBELET_RETRIES}")


def _detail(pointer: Pointer) -> str:
    parts = [pointer.reason, " ".join(pointer.message.split())[:_MAX_MESSAGE]]
    return "".join(f": {part}" for part in parts if part)


def _kubectl_command(ref: CacheRef) -> str:
    if ref.namespace is None:
        return f"kubectl get clustergkmcache {ref.name}"
    return f"kubectl get gkmcache -n {ref.namespace} {ref.name}"
