"""The links between a pod and the kernels of its cache, from the pod to its kernels. Pure.

Each link is one function without I/O. It may assume that the links that it needs are not broken, and raises Unreadable
if the cluster does not show whether it holds. `programs` decides about the containers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gkm.api.caches import condition_of
from gkm.api.errors import Reason
from gkm.api.features import INSTALL
from gkm.api.installation import DRIVER
from gkm.api.meta import TRUE, Condition
from gkm.api.nodes import CapturedImage, IncompatibleGPUs, NodeCacheStatus

from gkm_cli.clusters.reads import Unreadable
from gkm_cli.why.facts import ContainerState, Facts, PodFacts
from gkm_cli.why.outcomes import Broken, Holds, Outcome, kubectl
from gkm_cli.why.programs import decide_hits, decide_mount_path

PROVEN_BY = {"driver": "mount"}
"""A link that another one proves: only the driver mounts the volume."""
NEEDS: dict[str, tuple[str, ...]] = {
    "driver": ("node",),
    "object": ("volume",),
    "digest": ("object",),
    "signature": ("digest",),
    "report": ("node", "signature"),
    "preflight": ("report",),
    "store": ("preflight",),
    "mount": ("driver", "store"),
    "mount-path": ("volume",),
    "hits": ("mount", "mount-path"),
    "capture": ("volume", "node"),
}
"""For each link, the links that must hold before it can hold."""
_WORKING = {"Downloading", "Extracting"}
_ENDED = ("Succeeded", "Failed")
_START_ERROR = "StartError"
_REBUILD = "build the cache for these GPUs, or choose other nodes with spec.nodeSelector"
_SPELLING = "correct spec.image, or push the image"
_SUSPICIOUS = "check registry, mirrors and proxies; build and push the image again"
_LATER = "run the command again in a minute"
_OTHER = "docs/reference/reasons.md explains this reason"
AGAIN = "the agent tries again by itself, until capture.retention ends or newer captures fill capture.maxBytes"
_LOST = "the files were not copied, they are lost: free space, repair the node, or let the pod write fewer files"
_WHO_RUNS = "look at who runs in the pod before anything else"
_KEPT = "captured/<volume>/content on the node has the files until capture.retention ends"
NEXT: Mapping[str, str] = {
    Reason.TOO_LARGE: "raise capture.maxBytes, if the message names it; if it names the generation, and most files "
    f"are of that, the family is full: let pods name another cache; if the message says that {_LOST}",
    Reason.DISK_FULL: _LOST,
    Reason.NODE_ERROR: _LOST,
    Reason.UNSAFE_CONTENT: _WHO_RUNS,
    Reason.BACKEND_MISMATCH: _WHO_RUNS,
    Reason.ARCHITECTURE_MISMATCH: _WHO_RUNS,
    Reason.WARP_SIZE_MISMATCH: _WHO_RUNS,
    Reason.DRIVER_TOO_OLD: _WHO_RUNS,
    Reason.PTX_TOO_NEW: _WHO_RUNS,
    Reason.METADATA_MISSING: _KEPT,
    Reason.METADATA_INVALID: _KEPT,
    Reason.CONTENT_MISMATCH: _KEPT,
}
"""For each reason of a refused capture, the next step."""


def decide_capture(facts: Facts) -> Outcome:
    """Decide whether the newest capture of the volume, if there is one, was refused or waits for a reason."""
    if not facts.may_be_captured:
        why = 'it says capture: "false"' if facts.attributes.get("capture") == "false" else "it is read-only"
        return Holds(f"the volume is not captured: {why}")
    found = facts.newest_capture
    if found is None:
        return Holds("no failure; the agent of the node reports no capture of the volume")
    if found.state == "Refused":
        return Broken(f"the capture was refused: {_cause(found)}", _next(found))
    if found.state == "Waiting":
        return Broken(f"the capture waits: {_cause(found)}", AGAIN) if found.reason else Holds("the capture waits")
    return Holds(f"captured: {found.image or found.message}")


def _cause(found: CapturedImage) -> str:
    return f"{found.reason}: {found.message}"


def _next(found: CapturedImage) -> str:
    return NEXT.get(found.reason, _KEPT).replace("<volume>", found.volume)


def decide_volume(facts: Facts) -> Outcome:
    """Decide whether the pod has a usable volume of GKM."""
    volume = facts.volume.name
    if facts.cache_name is None:
        return Broken(
            f"the attributes of the volume {volume} do not name one cache of the pod's own namespace",
            "name it by cacheName, or a ClusterGKMCache by clusterCacheName (docs/features/volumes.md)",
        )
    if facts.is_unmappable and not _has_run(facts.pod):
        return Broken(
            f"the pod has hostUsers: false and the volume {volume} lacks userNamespace: no container runtime can map "
            "the ids of such a volume (failed to set MOUNT_ATTR_IDMAP: invalid argument)",
            f'add userNamespace: "true" to the volumeAttributes of {volume}, and create the pod again',
        )
    mounts = [f"{container.name} at {mount.mount_path}" for container, mount in facts.pod.mounts(volume)]
    if not mounts:
        return Broken(f"no container mounts the volume {volume}", "add it to the volumeMounts of the container")
    family = f", a member of the family {facts.family}" if facts.family else ""
    return Holds(f"{facts.named}{family}, mounted by {', '.join(mounts)}{_way(facts)}")


def _way(facts: Facts) -> str:
    """Say how the driver mounts a volume that leaves it the choice."""
    if not facts.depends_on_mode:
        return ""
    if facts.capture_mode.found is None:
        return f"; not checked: the capture mode of the driver, which decides the rest ({facts.mode_doubt.why})"
    if facts.capture_mode.found == "auto":
        return "; just in time, as capture.mode is auto"
    waits = facts.may_start_empty is False
    return f"; it waits for the cache, as capture.mode is {facts.capture_mode.found}" if waits else ""


def decide_node(facts: Facts) -> Outcome:
    """Decide whether the scheduler has bound the pod to a node."""
    if facts.pod.spec.node_name:
        return Holds(facts.pod.spec.node_name)
    messages = (one.message for one in facts.pod.status.conditions or () if one.type == "PodScheduled" and one.message)
    cause = next(messages, "the scheduler has not looked at it")
    return Broken(
        f"the pod has no node: {cause}", "correct what the pod requests, or free a node; GKM is not the cause"
    )


def decide_driver(facts: Facts) -> Outcome:
    """Decide whether the CSI driver is registered on the node."""
    if facts.has_driver.value is None:
        hint = f"install GKM: {INSTALL}; with delivery: image, name the cache by a label (docs/how-to/image-volumes.md)"
        return Broken(f"the cluster has no CSIDriver {DRIVER}", hint)
    node = facts.csi_node.value
    name = facts.pod.spec.node_name
    if node is None or DRIVER not in node.drivers:
        pods = kubectl("get", "pods", "-n", "gkm-system", "-o", "wide", f"--field-selector=spec.nodeName={name}")
        return Broken(
            f"kubelet of {name} has not registered {DRIVER}",
            f"see whether gkm-csi runs there: {pods}; it runs on nodes with the label of its DaemonSet",
        )
    return Holds(f"{DRIVER} is registered on {name}")


def decide_cache_object(facts: Facts) -> Outcome:
    """Decide whether the cache object that the volume names exists."""
    cache = facts.cache.value
    if cache is None:
        where = ("-n", facts.cache_name.namespace) if facts.cache_name and facts.cache_name.namespace else ()
        kind = f"{facts.cache_name.kind.lower()}s" if facts.cache_name else ""
        return Broken(
            f"there is no {facts.named}",
            f"create it, or correct the name in the volume's attributes; {kubectl('get', kind, *where)} lists them",
        )
    if cache.metadata.deletion_timestamp:
        return Broken(f"{facts.named} is being deleted", "create it again once it is gone")
    return Holds(f"{facts.named}, image {cache.spec.image}")


def decide_digest(facts: Facts) -> Outcome:
    """Decide whether the image of the cache was resolved to a digest."""
    cache = facts.existing_cache
    status = cache.status
    if status.resolved_digest and status.image == cache.spec.image:
        return Holds(status.resolved_digest)
    return _without_verdict(condition_of(cache, "Verified"), "resolved")


def decide_signature(facts: Facts) -> Outcome:
    """Decide whether the signatures of the image are verified."""
    verified = condition_of(facts.existing_cache, "Verified")
    if verified is None or verified.status != TRUE:
        return _without_verdict(verified, "verified")
    return Holds(f"{verified.reason}: {verified.message}" if verified.message else verified.reason)


def _without_verdict(verified: Condition | None, done: str) -> Broken:
    """Say why an image is not verified, or what the controllers have not yet done with it."""
    if verified is not None and verified.status != TRUE:
        return Broken(f"{verified.reason}: {verified.message}", remedy(verified.reason))
    hint = f"wait some seconds; else see whether they run: {kubectl('get', 'pods', '-n', 'gkm-system')}"
    return Broken(f"the controllers have not {done} the image yet", hint)


def decide_report(facts: Facts) -> Outcome:
    """Decide whether the node's agent reports about the cache."""
    name = facts.pod.spec.node_name
    kind = "GKMCacheNode" if facts.cache_name and facts.cache_name.namespace is not None else "ClusterGKMCacheNode"
    found = facts.on_node
    if found is not None and found.state != "Deleting":
        return Holds(f"{kind} {name}: {found.state}")
    if selector := facts.existing_cache.spec.node_selector:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
        node = kubectl("get", "node", name, "--show-labels")
        hint = f"compare the node's labels with spec.nodeSelector of the cache ({labels}): {node}"
    else:
        pods = kubectl("get", "pods", "-n", "gkm-system", "-o", "wide", f"--field-selector=spec.nodeName={name}")
        hint = f"see whether gkm-agent runs there, and read its log: {pods}"
    said = f"Deleting: {found.message}" if found else f"the agent of {name} does not report {facts.named}"
    return Broken(said, hint)


def decide_preflight(facts: Facts) -> Outcome:
    """Decide whether the cache fits the GPUs of the node."""
    found = facts.on_node or NodeCacheStatus(state="Pending")
    others = _others(found.incompatible_gpus)
    if found.state == "Incompatible":
        first = found.incompatible_gpus[0].reason if found.incompatible_gpus else found.reason
        return Broken(f"no GPU of the node can use it: {others or found.message}", remedy(found.reason or first))
    fitting = [index for group in found.compatible_gpus for index in group.ids]
    if not fitting and found.state == "Ready":
        return Holds("the agent of the node accepts it")
    if not fitting:
        raise Unreadable("the agent of the node has not checked its GPUs yet", _LATER)
    return Holds(f"it fits GPU {_ids(fitting)}" + (f"; not {others}" if others else ""))


def decide_store(facts: Facts) -> Outcome:
    """Decide whether the content of the cache is on the node."""
    found = facts.on_node or NodeCacheStatus(state="Pending")
    wanted = facts.existing_cache.status.resolved_digest
    if found.state == "Ready" and found.digest == wanted:
        return Holds(f"{found.size_bytes} bytes of {found.digest}")
    if found.state == "Ready":
        return Broken(
            f"the node still has {found.digest}, the cache is {wanted}", "wait: the agent fetches the new image"
        )
    if found.state in _WORKING:
        return Broken(f"the node is {found.state}, at {found.progress} %", "wait: kubelet retries the mount")
    cause = ": ".join(filter(None, (found.reason, found.message)))
    again = f"; the agent tries again at {found.next_try}" if found.next_try else ""
    if found.reason:
        return Broken(f"{found.state}: {cause}{again}", remedy(found.reason))
    return Broken(f"{found.state}{f': {cause}' if cause else ''}{again}", "wait: the agent of the node has not begun")


def decide_mount(facts: Facts) -> Outcome:
    """Decide whether the pod's volume of GKM is mounted on the node."""
    pod, found = facts.pod, facts.on_node
    meta = pod.metadata
    # Not by the pod's name: a StatefulSet has had others of it, whose volumes may still be mounted.
    used = [use for use in (found.pods if found else ()) if use.volume_id == facts.volume_id]
    wanted = facts.existing_cache.status.resolved_digest
    if any(use.digest == wanted for use in used):
        return Holds(f"{wanted} is mounted")
    restart = f"start the pod again: {kubectl('delete', 'pod', meta.name, '-n', meta.namespace)}"
    if used:
        return Broken(f"the pod has {used[0].digest}, from before the cache became {wanted}", restart)
    if not has_started(pod):
        events = facts.events.value or ()
        cause = events[0].message if events else "kubelet has reported no failure yet"
        return Broken(f"the volume is not mounted: {cause}", "kubelet retries; read the message, and wait a minute")
    if facts.may_start_empty:
        return Broken("the pod started with an empty volume, because the cache was not ready then", restart)
    if pod.status.phase in _ENDED:
        return Holds("the pod has ended; its volume was mounted, and no report says of which digest")
    unreported = "the pod runs; the agent has not reported its volume yet"
    if facts.may_start_empty is None:
        doubt = facts.mode_doubt
        raise Unreadable(f"{unreported}, or it started without the cache: {doubt.why}", doubt.hint or _LATER)
    raise Unreadable(unreported, _LATER)


Links = Mapping[str, Callable[[Facts], Outcome]]
LINKS: dict[str, Callable[[Facts], Outcome]] = {
    "volume": decide_volume,
    "node": decide_node,
    "driver": decide_driver,
    "object": decide_cache_object,
    "digest": decide_digest,
    "signature": decide_signature,
    "report": decide_report,
    "preflight": decide_preflight,
    "store": decide_store,
    "mount": decide_mount,
    "mount-path": decide_mount_path,
    "hits": decide_hits,
    "capture": decide_capture,
}
"""The links, from the pod to its kernels."""


class State(StrEnum):
    """The state of a link between a pod and its kernels."""

    OK = "ok"
    BROKEN = "broken"
    NOT_CHECKED = "not checked"
    """The cluster does not show what the link needs."""
    SKIPPED = "skipped"
    """A link that it needs is broken, so this one cannot hold."""


@dataclass(frozen=True, slots=True)
class LinkResult:
    """The result of one link between a pod and its kernels, for one volume."""

    volume: str
    link: str
    state: State
    detail: str = ""
    hint: str = ""


def walk(facts: Facts, links: Links = LINKS, needs: Mapping[str, Sequence[str]] = NEEDS) -> list[LinkResult]:
    """Return the result of every link for a volume; links that need a broken link are skipped."""
    steps: dict[str, LinkResult] = {}
    for link, decide in links.items():
        needed = {steps[each].state for each in needs.get(link, ())}
        is_skipped = bool(needed & {State.BROKEN, State.SKIPPED})
        skipped = LinkResult(facts.volume.name, link, State.SKIPPED)
        steps[link] = skipped if is_skipped else _decided(facts, link, decide)
    for link, proof in PROVEN_BY.items():
        if link in steps and steps[link].state is State.NOT_CHECKED and steps[proof].state is State.OK:
            steps[link] = LinkResult(facts.volume.name, link, State.OK, f"not read, but {steps[proof].detail}")
    return list(steps.values())


def _decided(facts: Facts, link: str, decide: Callable[[Facts], Outcome]) -> LinkResult:
    try:
        outcome = decide(facts)
    except Unreadable as failure:
        return LinkResult(facts.volume.name, link, State.NOT_CHECKED, failure.why, failure.hint)
    if isinstance(outcome, Broken):
        return LinkResult(facts.volume.name, link, State.BROKEN, outcome.detail, outcome.hint)
    return LinkResult(facts.volume.name, link, State.OK, outcome.detail)


def _others(groups: Iterable[IncompatibleGPUs]) -> str:
    return "; ".join(f"GPU {_ids(group.ids)}: {group.reason}: {group.message}" for group in groups)


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def has_started(pod: PodFacts) -> bool:
    """Return whether a container of the pod has started: kubelet mounts all volumes before."""
    return any(_started(status.state) or _started(status.last_state) for status in pod.statuses)


def _has_run(pod: PodFacts) -> bool:
    """Return whether a program has run: a container that the runtime could not start counts as ended too."""
    states = (state for status in pod.statuses for state in (status.state, status.last_state))
    return any(
        _started(state) and not (state.terminated and state.terminated.reason == _START_ERROR) for state in states
    )


def _started(state: ContainerState) -> bool:
    return state.running is not None or state.terminated is not None


_REMEDIES = {
    Reason.SIGNATURE_MISSING: "sign the image with gkm cache sign, or add a policy that covers it to gkm-config",
    Reason.SIGNATURE_INVALID: "gkm cache verify says why each signature does not count; sign with the right key",
    Reason.IDENTITY_MISMATCH: "add the identity to the policy in gkm-config if it may sign; else do not use the image",
    Reason.ATTESTATION_MISSING: "gkm cache verify says what each attestation lacks; add one with gkm cache attest",
    Reason.REGISTRY_UNAVAILABLE: "check the registry, its certificate and registries.hosts in gkm-config; GKM retries",
    Reason.UNAUTHORIZED: "name a pull secret in spec.imagePullSecrets, opened to GKM (deploy/samples/pull-secret.yaml)",
    Reason.NOT_FOUND: _SPELLING,
    Reason.INVALID_REFERENCE: _SPELLING,
    Reason.NOT_ALLOWED: "add the registry to registries.allow, and a host of a private network to registries.hosts",
    Reason.BACKEND_MISMATCH: _REBUILD,
    Reason.ARCHITECTURE_MISMATCH: _REBUILD,
    Reason.WARP_SIZE_MISMATCH: "build the image again: its labels are probably wrong",
    Reason.DRIVER_TOO_OLD: "upgrade the GPU driver of the node, or build the cache with an older CUDA",
    Reason.PTX_TOO_NEW: "upgrade the GPU driver of the node, or build the cache with an older CUDA",
    Reason.METADATA_MISSING: "check that the image is a cache: build it with gkm cache build",
    Reason.METADATA_INVALID: "build the image again: the message names the label",
    Reason.NO_GPU: "correct spec.nodeSelector, or check the GPU driver of the node",
    Reason.GPU_LOST: "look at dmesg and nvidia-smi on the node; reset the GPU, or drain the node",
    Reason.DIGEST_MISMATCH: _SUSPICIOUS,
    Reason.CONTENT_MISMATCH: _SUSPICIOUS,
    Reason.TOO_LARGE: "raise store.maxImageBytes in gkm-config if the image is intended",
    Reason.UNSAFE_CONTENT: "do not use the image; its builder must explain it",
    Reason.DISK_FULL: "free space on the node, delete caches, or raise store.maxBytes in gkm-config; GKM retries",
    Reason.NODE_ERROR: "read the message, and the log of gkm-agent on the node; GKM retries",
}


def remedy(reason: str) -> str:
    """Return the next step for a reason of a cache's failure; for an unknown reason, where to read about it."""
    return _REMEDIES.get(Reason(reason), _OTHER) if reason in set(Reason) else _OTHER
