"""Pods of many shapes, also odd and invalid ones, and whether an API server takes them: it tries without storing."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

import urllib3
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE, CONTAINER, IF_UNAVAILABLE, MODE, NODES, PATH
from gkm.api.task_groups import GROUP_LABEL, USER_CONTAINER_LABEL
from support.cluster.cluster import Cluster
from support.host.waiting import scaled

Json = dict[str, Any]
MAX_ANNOTATIONS = 256 << 10
"""Bytes of all keys and values (k8s.io/apimachinery, pkg/api/validation/objectmeta.go: TotalAnnotationSizeLimitB)."""
PATHS = (
    "/var/cache/gkm/llama",
    "/var/cache/gkm/llama/",
    "/var/cache/gkm/llama/deep",
    "/var/cache/gkm",
    "/var",
    "/",
    "/models",
    "var/cache/gkm/llama",
    "/var/cache/../cache/gkm/llama",
    "//var/cache/gkm/llama",
    "C:\\cache",
)
VOLUMES = ("data", "block", "gkm-cache", "gkm-cluster-cache", "shm", "own")
VARIABLES = ("TRITON_CACHE_DIR", "VLLM_CACHE_ROOT", "A", "B_C", "1")
GPU = {"limits": {"nvidia.com/gpu": "1"}}


def random_pod(random: Random) -> Json:
    """Return a pod. It mounts no token of its account: its name would differ in each try."""
    volumes = random.sample(VOLUMES, random.choice((0, 1, 2, 3)))
    spec: Json = {
        "automountServiceAccountToken": False,
        "containers": [_container(random, f"c{n}", volumes) for n in range(random.choice((1, 1, 1, 2, 3)))],
    }
    if volumes or random.random() < 0.1:
        spec["volumes"] = [_volume(random, name) for name in volumes]
    if random.random() < 0.2:
        spec["initContainers"] = [_container(random, "init", volumes)]
    if random.random() < 0.4:
        spec["affinity"] = _affinity(random)
    spec |= random.choice(
        (
            {},
            {},
            {},
            {"os": {"name": "windows"}},
            {"os": {"name": "linux"}, "hostNetwork": True},
            {"restartPolicy": "Never", "tolerations": [{"operator": "Exists"}]},
            {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000}},
            {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]},
            {"nodeName": "somewhere"},
            {"schedulingGates": [{"name": "example.com/wait"}]},
        )
    )
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(random), "spec": spec}


def random_task_pod(random: Random, group: str) -> Json:
    """Return a pod of a TaskGroup, with claims and affinities of its own that GKM must leave as they are."""
    pod = random_pod(random)
    metadata, spec = pod["metadata"], pod["spec"]
    labels = {**metadata["labels"], GROUP_LABEL: group}
    if random.random() < 0.4:
        labels[USER_CONTAINER_LABEL] = random.choice(("c0", "c1", "init", "none", ""))
    if random.random() < 0.5:
        spec["resourceClaims"] = random.choice(_CLAIMS)
        for each in spec["containers"]:
            each["resources"] = random.choice(({}, GPU, {"claims": []}, GPU | {"claims": [{"name": "gpu"}]}))
    if random.random() < 0.6:
        terms = [random.choice(_POD_TERMS) for _ in range(random.choice((0, 1, 2)))]
        weighted = [{"weight": 7, "podAffinityTerm": term} for term in terms]
        spec.setdefault("affinity", {})[random.choice(("podAffinity", "podAffinity", "podAntiAffinity"))] = (
            random.choice(({}, {_REQUIRED: terms}, {_PREFERRED: weighted}, {_REQUIRED: terms, _PREFERRED: weighted}))
        )
    return pod | {"metadata": metadata | {"labels": labels}}


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_POD_TERMS: tuple[Json, ...] = (
    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}},
    {"topologyKey": "gkm.io/fabric-domain", "labelSelector": {"matchLabels": {"app": "x"}}},
    {"topologyKey": "zone", "namespaces": ["other"]},
    {"topologyKey": "rack", "labelSelector": {}},
    {"topologyKey": "", "labelSelector": {}},
)
_CLAIMS: tuple[list[Json], ...] = (
    [],
    [{"name": "gpu", "resourceClaimName": "gpu"}],
    [{"name": "gpu", "resourceClaimTemplateName": "gpu"}, {"name": "nic", "resourceClaimName": "nic"}],
    [{"name": "gpu", "resourceClaimName": "gpu"}, {"name": "compute-domain-channel", "resourceClaimName": "own"}],
    [{"name": "gpu", "resourceClaimName": "gpu"}, {"name": "mnnvl-claim", "resourceClaimTemplateName": "own"}],
    [{"name": "gpu"}],
    [{"name": "gpu", "resourceClaimName": "gpu"}] * 2,
)


def _metadata(random: Random) -> Json:
    labels = random.choice(
        (
            {},
            {"app": "x"},
            {CACHE: "llama"},
            {CACHE: "llama", CLUSTER_CACHE: "shared"},
            {CLUSTER_CACHE: "shared"},
            {CACHE: "unknown"},
            {CACHE: "Not_A_Name"},
            {CACHE: ""},
        )
    )
    made: Json = {"name": "tried", "labels": labels}
    wishes = {
        PATH: (*PATHS, "", "/dev/nvidia0"),
        MODE: ("private", "read-only", "odd"),
        NODES: ("preferred", "required", "odd"),
        IF_UNAVAILABLE: ("wait", "empty", "odd"),
        CONTAINER: ("c0", "c1", "none"),
    }
    annotations = {key: random.choice(values) for key, values in wishes.items() if random.random() < 0.2}
    if random.random() < 0.2:
        annotations["example.com/a~b"] = random.choice(("", "é" * 100, "~1/\\"))
    if random.random() < 0.15:
        _fill(annotations, random.choice((0, 1, 50, 120, 200, 300, 500, 1000, 5000)))
    if annotations or random.random() < 0.2:
        made["annotations"] = annotations
    return made


def _fill(annotations: Json, room: int) -> None:
    """Add an annotation, so that all of them together are `room` bytes below the limit."""
    used = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    annotations["example.com/large"] = "x" * (MAX_ANNOTATIONS - room - used - len("example.com/large"))


def _container(random: Random, name: str, volumes: list[str]) -> Json:
    made: Json = {"name": name, "image": "registry.test/team/server:1"}
    made |= random.choice(({}, {"resources": GPU}, {"resources": GPU}, {"resources": {"claims": [{"name": "gpu"}]}}))
    mounted = [each for each in volumes if each != "block" and random.random() < 0.6]
    if mounted or random.random() < 0.1:
        made["volumeMounts"] = [_mount(random, each) for each in mounted]
    if "block" in volumes and random.random() < 0.8:
        made["volumeDevices"] = [{"name": "block", "devicePath": random.choice((*PATHS, "/dev/nvidia0"))}]
    if random.random() < 0.4:
        made["env"] = [_variable(random) for _ in range(random.choice((0, 1, 2, 3)))]
    if random.random() < 0.1:
        made["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    return made


def _mount(random: Random, name: str) -> Json:
    return {"name": name, "mountPath": random.choice(PATHS)} | random.choice(
        ({}, {}, {"readOnly": True}, {"subPath": "a/b"}, {"mountPropagation": "HostToContainer"})
    )


def _variable(random: Random) -> Json:
    name = random.choice(VARIABLES)
    return {"name": name} | random.choice(
        (
            {},
            {"value": "x"},
            {"value": random.choice(PATHS)},
            {"value": "$(A)/x"},
            {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        )
    )


def _volume(random: Random, name: str) -> Json:
    if name == "block":
        return {"name": name, "persistentVolumeClaim": {"claimName": "disk"}}
    attributes = random.choice(({"cacheName": "llama"}, {"clusterCacheName": "shared"}, {"cacheName": "other"}, {}))
    return {"name": name} | random.choice(
        (
            {"emptyDir": {}},
            {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"hostPath": {"path": "/var/cache"}},
            {"configMap": {"name": "settings"}},
            {"csi": {"driver": "csi.gkm.io", "volumeAttributes": attributes}},
            {"csi": {"driver": "csi.example.com", "readOnly": True}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": _CLAIM}}},
            {"projected": {"sources": [{"downwardAPI": {"items": [_ITEM]}}]}},
        )
    )


_OK = (200, 201)
OF_A_TRY = ("uid", "creationTimestamp", "managedFields", "namespace")
"""Metadata that is another one in each try."""
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_ITEM = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}


def _affinity(random: Random) -> Json:
    expressions: tuple[Json, ...] = (
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "cache.gkm.io/pods-with.llama", "operator": "Exists"},
        {"key": "cache.gkm.io/pods-with.llama", "operator": "DoesNotExist"},
    )

    def term() -> Json:
        made: Json = {}
        if random.random() < 0.8:
            made["matchExpressions"] = random.sample(expressions, random.choice((0, 1, 2)))
        if random.random() < 0.3:
            made["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["node"]}]
        return made

    nodes: Json = {}
    if random.random() < 0.6:
        terms = [term() for _ in range(random.choice((1, 1, 2)))]
        nodes["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if random.random() < 0.6:
        preferred = [{"weight": random.choice((1, 100)), "preference": term()} for _ in range(random.choice((0, 1, 2)))]
        nodes["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return random.choice(({}, {"nodeAffinity": {}}, {"nodeAffinity": nodes}, {"nodeAffinity": nodes}))


@dataclass(frozen=True)
class Tried:
    """The pod that the API server would store, or why it refuses it."""

    pod: Json
    refusal: str = ""

    @property
    def kept(self) -> Json:
        """Return the pod without what is another in each try."""
        metadata = {key: value for key, value in self.pod["metadata"].items() if key not in OF_A_TRY}
        return {"metadata": metadata, "spec": self.pod["spec"]}


class PodTries:
    """Dry runs on connections that stay open: kubectl would take 70 ms of a core for each."""

    def __init__(self, cluster: Cluster) -> None:
        self._url = cluster.url
        self._pool = urllib3.PoolManager(ssl_context=cluster.control_plane.admin_context(), maxsize=4)

    def create(self, pod: Json, namespace: str) -> Tried:
        return self._request("POST", f"{namespace}/pods?dryRun=All&fieldValidation=Strict", pod, namespace)

    def compared(self, pods: list[Json], without: str, called: str) -> list[tuple[Tried, Tried]]:
        """Return what the API server stores of each valid pod in a namespace without the webhook, and in one with it.

        Raises:
            AssertionError: it refuses a valid pod with the webhook, or a field of a pod changes.
        """
        with ThreadPoolExecutor(2) as threads:
            before = list(threads.map(lambda pod: self.create(pod, without), pods))
            after = list(threads.map(lambda pod: self.create(pod, called), pods))
        valid = [(old, new) for old, new in zip(before, after, strict=True) if not old.refusal]
        refused = [new.refusal[:300] for _, new in valid if new.refusal]
        assert not refused, f"{len(refused)} valid pods are refused: {refused[:5]}"
        changed = [found for old, new in valid if (found := lost(old.kept, new.kept))]
        assert not changed, f"{len(changed)} pods lose fields: {changed[:5]}"
        return valid

    def store(self, pod: Json, namespace: str) -> str:
        """Create a pod, and delete it if etcd takes so much once more; return the refusal."""
        refusal = self._request("POST", f"{namespace}/pods", pod, namespace).refusal
        name = pod["metadata"]["name"]
        self._request("DELETE", f"{namespace}/pods/{name}?gracePeriodSeconds=0", None, namespace)
        return refusal

    def _request(self, method: str, path: str, pod: Json | None, namespace: str) -> Tried:
        made = pod and pod | {"metadata": pod["metadata"] | {"namespace": namespace}}
        answer = self._pool.request(
            method,
            f"{self._url}/api/v1/namespaces/{path}",
            body=json.dumps(made).encode() if made else None,
            headers={"Content-Type": "application/json"},
            timeout=scaled(30),
        )
        found = json.loads(answer.data)
        return Tried(found) if answer.status in _OK else Tried({}, str(found.get("message", answer.status)))


def lost(before: Any, after: Any, at: str = "") -> list[str]:  # noqa: ANN401 -- JSON
    """Return the fields of `before` that `after` has not, or has with another value; lists may have more at the end."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [each for key in before for each in lost(before[key], after.get(key), f"{at}/{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        return [
            each
            for n, (old, new) in enumerate(zip(before, after, strict=False))
            for each in lost(old, new, f"{at}/{n}")
        ]
    return [] if before == after else [at]
