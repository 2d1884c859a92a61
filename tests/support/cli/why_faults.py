"""Faults in the objects between a pod and its kernels: the link that each breaks, and the command that mends it."""

import json
from collections.abc import Callable
from typing import Any

from support.cli.why_site import DIGEST, OTHER, VOLUME_ID, Json, condition


def attributes(made: dict[str, Json]) -> dict[str, str]:
    found: dict[str, str] = made["pod"]["spec"]["volumes"][0]["csi"]["volumeAttributes"]
    return found


def container(made: dict[str, Json]) -> Json:
    found: Json = made["pod"]["spec"]["containers"][0]
    return found


def on_node(made: dict[str, Json], **values: Any) -> None:  # noqa: ANN401 -- JSON
    """Replace the report about the cache."""
    made["report"]["status"]["caches"]["llama"] = {
        "state": "Ready",
        "digest": DIGEST,
        "compatibleGPUs": [{"ids": [0]}],
        **values,
    }


def not_started(made: dict[str, Json]) -> None:
    made["pod"]["status"] = {"phase": "Pending"}
    made["report"]["status"]["caches"]["llama"]["pods"] = []


def unverified(made: dict[str, Json], reason: str, *, resolved: bool = True) -> None:
    status = made["cache"]["status"]
    status["conditions"] = [
        condition("Verified", "False", reason, "the cause"),
        condition("Ready", "False", "NotVerified"),
    ]
    if not resolved:
        del status["resolvedDigest"]


def failed_mount(made: dict[str, Json]) -> None:
    not_started(made)


def restarted(made: dict[str, Json], message: str = "OSError: [Errno 30] Read-only file system: '/cache/X'") -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": message}
    made["pod"]["status"]["containerStatuses"][0]["lastState"] = {"terminated": ended}


def start_error(made: dict[str, Json]) -> None:
    """Let the container runtime start no container."""
    ended = {"exitCode": 128, "reason": "StartError", "message": "failed to set MOUNT_ATTR_IDMAP: invalid argument"}
    made["pod"]["status"]["containerStatuses"][0].update(state={"terminated": ended}, lastState={})


def all_of(*changes: Callable[[dict[str, Json]], object]) -> Callable[[dict[str, Json]], object]:
    """Return a change that is several."""
    return lambda made: [change(made) for change in changes]


def variable(made: dict[str, Json], name: str, value: str) -> None:
    """Make this the only variable of the container."""
    container(made)["env"] = [{"name": name, "value": value}]


def private(made: dict[str, Json], message: str) -> None:
    """Give the pod a private layer, and an end with this message."""
    attributes(made).update(readOnly="false")
    restarted(made, message)


def captured(made: dict[str, Json], *captures: Json) -> None:
    """Give the pod a private layer, and the report these captures of its volume, the newest first."""
    attributes(made).update(readOnly="false", ifUnavailable="wait")
    made["report"]["status"]["captures"] = [{"volume": VOLUME_ID, "pod": "server"} | each for each in captures]


def without_path(made: dict[str, Json]) -> None:
    del attributes(made)["mountPath"]


def sub_path(made: dict[str, Json]) -> None:
    container(made)["volumeMounts"][0].update(subPath="a")


def no_mount_path(made: dict[str, Json]) -> None:
    restarted(made)
    del attributes(made)["mountPath"]


def unmounted(made: dict[str, Json], **metadata: Json) -> None:
    """Take the volume away; `metadata` are labels and annotations."""
    made["pod"]["spec"].update(volumes=[], containers=[{"name": "server", "image": "i"}])
    made["pod"]["metadata"].update(metadata)


LABEL = {"gkm.io/cache": "llama"}
REPORT = json.dumps({"skipped": [{"what": "gkm.io/cache", "why": "the pod has another volume gkm-cache"}]})

FAULTS: dict[str, tuple[str, Callable[[dict[str, Json]], object], str]] = {
    "no volume": ("volume", unmounted, "deploy/samples/pod.yaml"),
    "a label that the webhook did not see": (
        "volume",
        lambda made: unmounted(made, labels=LABEL),
        "kubectl get mutatingwebhookconfiguration gkm-pod-caches shows whether it is installed",
    ),
    "a label that the webhook could not use": (
        "volume",
        lambda made: unmounted(made, labels=LABEL, annotations={"gkm.io/injected": REPORT}),
        "create the pod again",
    ),
    "two caches": ("volume", lambda made: attributes(made).update(clusterCacheName="llama"), "name it by cacheName"),
    "a foreign namespace": (
        "volume",
        lambda made: attributes(made).update(cacheNamespace="default"),
        "name it by cacheName",
    ),
    "a user namespace that the volume is not made for": (
        "volume",
        all_of(lambda made: made["pod"]["spec"].update(hostUsers=False), not_started),
        'add userNamespace: "true" to the volumeAttributes',
    ),
    "a user namespace, and the runtime has tried": (
        "volume",
        all_of(lambda made: made["pod"]["spec"].update(hostUsers=False), start_error),
        'add userNamespace: "true" to the volumeAttributes',
    ),
    "no container": ("volume", lambda made: container(made).update(volumeMounts=[]), "volumeMounts"),
    "no node": ("node", lambda made: made["pod"]["spec"].pop("nodeName"), "free a node"),
    "no CSIDriver": ("driver", lambda made: made.pop("driver"), "install GKM"),
    "no CSINode": ("driver", lambda made: made.pop("csinode"), "gkm-csi"),
    "not registered": ("driver", lambda made: made["csinode"]["spec"].update(drivers=[]), "gkm-csi"),
    "no object": ("object", lambda made: made.pop("cache"), "kubectl get gkmcaches -n ml-apps"),
    "another name": ("object", lambda made: attributes(made).update(cacheName="lama"), "correct the name"),
    "no controller": ("digest", lambda made: made["cache"].pop("status"), "kubectl get pods -n gkm-system"),
    "not resolved": (
        "digest",
        lambda made: unverified(made, "RegistryUnavailable", resolved=False),
        "registries.hosts",
    ),
    "an image of before": (
        "digest",
        lambda made: made["cache"]["status"].update(image="registry.example/old:1"),
        "wait",
    ),
    "no signature": ("signature", lambda made: unverified(made, "SignatureMissing"), "gkm cache sign"),
    "another identity": ("signature", lambda made: unverified(made, "IdentityMismatch"), "policy"),
    "no report": ("report", lambda made: made.pop("report"), "gkm-agent"),
    "a report without it": ("report", lambda made: made["report"]["status"].update(caches={}), "gkm-agent"),
    "another node selector": (
        "report",
        lambda made: (made["cache"]["spec"].update(nodeSelector={"pool": "b"}), made.pop("report")),
        "pool=b",
    ),
    "a node selector that left the node": (
        "report",
        all_of(
            lambda made: made["cache"]["spec"].update(nodeSelector={"pool": "b"}),
            lambda made: on_node(made, state="Deleting", compatibleGPUs=[], message="no longer wanted on this node"),
        ),
        "pool=b",
    ),
    "another GPU": (
        "preflight",
        lambda made: on_node(
            made,
            state="Incompatible",
            reason="ArchitectureMismatch",
            incompatibleGPUs=[{"ids": [0], "reason": "ArchitectureMismatch", "message": "built for sm_90, not sm_80"}],
        ),
        "build the cache for these GPUs",
    ),
    "a driver too old": (
        "preflight",
        lambda made: on_node(made, state="Incompatible", reason="DriverTooOld", message="CUDA 13 needs 580"),
        "upgrade the GPU driver",
    ),
    "downloading": ("store", lambda made: on_node(made, state="Downloading", progress=40), "wait"),
    "a full disk": (
        "store",
        lambda made: on_node(made, state="Failed", reason="DiskFull", message="none free"),
        "free space",
    ),
    "the digest of before": ("store", lambda made: on_node(made, digest=OTHER), "wait"),
    "not mounted": ("mount", failed_mount, "kubelet retries"),
    "mounted before": (
        "mount",
        lambda made: made["report"]["status"]["caches"]["llama"]["pods"][0].update(digest=OTHER),
        "kubectl delete pod server -n ml-apps",
    ),
    "an empty volume": (
        "mount",
        lambda made: (
            attributes(made).update(ifUnavailable="empty"),
            made["report"]["status"]["caches"]["llama"].update(pods=[]),
        ),
        "kubectl delete pod server -n ml-apps",
    ),
    "no mount path": (
        "mount-path",
        no_mount_path,
        "add mountPath: /cache",
    ),
    "a variable elsewhere without a mount path": (
        "mount-path",
        all_of(without_path, lambda made: variable(made, "TRITON_CACHE_DIR", "/tmp/triton")),
        "set it to /cache",
    ),
    "a sub path without a mount path": (
        "mount-path",
        all_of(without_path, sub_path),
        "remove subPath",
    ),
    "a sub path and a variable elsewhere": (
        "mount-path",
        all_of(sub_path, lambda made: variable(made, "TRITON_CACHE_DIR", "/tmp/triton")),
        "set it to /cache",
    ),
    "the variable of another runtime": (
        "mount-path",
        lambda made: variable(made, "VLLM_CACHE_ROOT", "/cache"),
        "set TRITON_CACHE_DIR to /cache",
    ),
    "a directory below the only cache": (
        "mount-path",
        lambda made: variable(made, "TRITON_CACHE_DIR", "/cache/triton"),
        "set it to /cache",
    ),
    "a way out of the volume": (
        "mount-path",
        lambda made: variable(made, "TRITON_CACHE_DIR", "/cache/../tmp"),
        "set it to /cache",
    ),
    "another mount path": ("mount-path", lambda made: attributes(made).update(mountPath="/kernels"), "the same path"),
    "a sub path": ("mount-path", lambda made: container(made)["volumeMounts"][0].update(subPath="a"), "remove subPath"),
    "another variable": (
        "mount-path",
        lambda made: container(made)["env"][0].update(value="/tmp/triton"),
        "set it to /cache",
    ),
    "a miss on a read-only volume": ("hits", restarted, 'readOnly: "false"'),
    "a full private layer": (
        "hits",
        lambda made: private(made, "OSError: [Errno 28] No space left on device: '/cache/X'"),
        "raise sizeLimit in volumeAttributes",
    ),
    "a refused capture": (
        "capture",
        lambda made: captured(made, {"state": "Refused", "reason": "TooLarge", "message": "50,001 files"}),
        "raise capture.maxBytes, if the message names it",
    ),
    "a capture that cannot be sent, before one that was": (
        "capture",
        lambda made: captured(
            made,
            {"volume": f"{VOLUME_ID}.1764000000", "state": "Waiting", "reason": "Unauthorized", "message": "401"},
            {"volume": f"{VOLUME_ID}.1763000000", "state": "Announced"},
        ),
        "the agent tries again by itself, until capture.retention ends",
    ),
}

LOGS = "kubectl logs server -n ml-apps -c server --previous"
PRINTENV = "kubectl exec server -n ml-apps -c server -- printenv TRITON_CACHE_DIR"
UNKNOWN: dict[str, tuple[str, Callable[[dict[str, Json]], object], str]] = {
    "no mount path, and nothing failed": ("mount-path", without_path, "add mountPath: /cache to volumeAttributes"),
    "no variable": ("mount-path", lambda made: container(made).pop("env"), PRINTENV),
    "a variable of a ConfigMap": (
        "mount-path",
        lambda made: container(made).update(
            env=[{"name": "TRITON_CACHE_DIR", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]
        ),
        PRINTENV,
    ),
    "a variable that refers to another": (
        "mount-path",
        lambda made: variable(made, "TRITON_CACHE_DIR", "$(CACHE)"),
        PRINTENV,
    ),
    "variables of an unknown runtime in two places": (
        "mount-path",
        lambda made: (
            made["cache"]["status"].pop("runtime"),
            container(made)["env"].append({"name": "FLASHINFER_WORKSPACE_BASE", "value": "/other"}),
        ),
        "kubectl get gkmcaches llama -n ml-apps",
    ),
    "an end without a message": ("hits", lambda made: restarted(made, ""), LOGS),
    "an end by an unknown error": ("hits", lambda made: restarted(made, "RuntimeError: boom"), LOGS),
    "a refused write at a path that is not told": ("hits", lambda made: restarted(made, "Read-only file system"), LOGS),
    "a full disk at a path that is not told": (
        "hits",
        lambda made: private(made, "No space left on device (os error 28)"),
        LOGS,
    ),
    "a private layer that refuses a write": (
        "hits",
        lambda made: private(made, "OSError: [Errno 30] Read-only file system: '/cache/X'"),
        LOGS,
    ),
    "a volume that the agent has not reported": (
        "mount",
        lambda made: made["report"]["status"]["caches"]["llama"].pop("pods"),
        "run the command again in a minute",
    ),
}
"""States in which the cluster does not show whether the link holds, and the command that shows it."""

SEVERAL: dict[str, tuple[set[str], Callable[[dict[str, Json]], object]]] = {
    "no node and no object": (
        {"node", "object"},
        lambda made: (made["pod"]["spec"].pop("nodeName"), made.pop("cache")),
    ),
    "no CSIDriver and a sub path": (
        {"driver", "mount-path"},
        all_of(lambda made: made.pop("driver"), sub_path),
    ),
    "not mounted and a variable elsewhere": (
        {"mount", "mount-path"},
        all_of(not_started, lambda made: variable(made, "TRITON_CACHE_DIR", "/tmp/triton")),
    ),
}
"""Faults that have nothing to do with one another, and the links that each breaks."""
