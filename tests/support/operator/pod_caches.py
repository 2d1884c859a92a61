"""Reviews of pods with caches as the API server requests them: the real reviewer on watches of an API in memory."""

import json
from dataclasses import dataclass, field
from typing import Any

from gkm.api.config import Config
from gkm.api.fabric_settings import Fabric
from gkm.api.pod_caches import CACHE, INJECTED
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource
from gkm_operator.admission.domains.cluster_view import ClusterView
from gkm_operator.admission.domains.reviewer import ByteBudget, WorkloadReviewer
from gkm_operator.admission.pods.members import ObservedCaches
from gkm_operator.admission.workloads import PATH, cache_reviewers
from gkm_operator.delivery import ObservedDelivery
from support.grove.objects import NAMESPACE, Json
from support.kube.fake_api import FakeApi
from support.operator.deployment import cache
from support.operator.workloads import Answer, answer, as_json, review_of

LABELED = Config(fabric=Fabric(cache_labels=True))
NAMESPACES: Resource[Json] = Resource("v1", "Namespace", "namespaces", namespaced=False, type=Json)
KIND = ("", "v1", "Pod")
GPU: Json = {"limits": {"nvidia.com/gpu": "1"}}


@dataclass
class PodCaches:
    """A cluster, watches of it that may lag behind, and the reviewer."""

    config: Config = LABELED
    api: FakeApi = field(default_factory=FakeApi)
    observed: ObservedCaches = field(init=False)
    delivery: ObservedDelivery = field(init=False)
    reviewer: WorkloadReviewer[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.observed = ObservedCaches(self.api)
        view = ClusterView(self.api, self.api, "gkm-system")
        self.delivery = ObservedDelivery(self.api, self.config.delivery)
        self.reviewer = cache_reviewers(view, self.observed, self.delivery, self.config, ByteBudget())[PATH]

    def declare(self, name: str, runtime: str = "triton", namespace: str | None = NAMESPACE, **spec: object) -> None:
        """Create a cache whose image the controllers have read; `spec` has its place in a family."""
        self.verified(name, {"runtime": runtime}, spec, namespace)

    def verified(self, name: str, status: Json, spec: Json, namespace: str | None = NAMESPACE) -> None:
        """Create a cache with a status by the controllers."""
        resource = as_json(GKMCACHES if namespace else CLUSTERGKMCACHES)
        made = cache(name, "registry.test/team/x:1", namespace)
        made["spec"] |= spec
        self.api.create(resource, made)
        written = {each: made[each] for each in ("apiVersion", "kind", "metadata")} | {"status": status}
        self.api.apply(resource, written, field_manager="gkm-controllers", subresource="status")

    def default(self, name: str, namespace: str = NAMESPACE) -> None:
        """Create a namespace with a default cache."""
        metadata = {"name": namespace, "labels": {"gkm.io/default-cache": name}}
        self.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def observe(self) -> None:
        """Let the watches list everything once; they watch nothing."""
        for reflector in (*self.observed.watches(), *self.delivery.watches()):
            reflector._list()

    def review(self, pod: Json, **changes: Any) -> Answer:  # noqa: ANN401 -- JSON
        """Return the response to a request about a pod."""
        body = review_of(KIND, pod, **changes)
        return answer(self.reviewer(lambda: body, lambda: None), pod)


def pod_caches(*names: str, config: Config = LABELED, runtime: str = "triton") -> PodCaches:
    """Return a cluster with these caches, observed."""
    made = PodCaches(config)
    for name in names:
        made.declare(name, runtime)
    made.observe()
    return made


def container(name: str = "main", **fields: object) -> Json:
    return {"name": name, "image": "registry.test/team/server:1", **fields}


def a_pod(*containers: Json, labels: Json | None = None, annotations: Json | None = None, **spec: object) -> Json:
    """Return a pod; by default one container that requests a GPU, and the label of the cache `llama`."""
    metadata: Json = {"generateName": "x-", "namespace": NAMESPACE}
    metadata["labels"] = {CACHE: "llama"} if labels is None else labels
    metadata |= {} if annotations is None else {"annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": list(containers) or [container(resources=GPU)], **spec}}


def attributes(pod: Json, volume: str = "gkm-cache") -> Json:
    """Return the attributes of a volume that a pod was given."""
    (found,) = (each["csi"] for each in pod["spec"]["volumes"] if each["name"] == volume)
    assert found["driver"] == "csi.gkm.io"
    made: Json = found["volumeAttributes"]
    return made


def report(found: Answer) -> Json:
    """Return the annotation about what was injected."""
    made: Json = json.loads(found.annotations[INJECTED])
    return made


def reviews() -> dict[str, bytes]:
    """Return a review that changes a pod, by its path."""
    made = a_pod(container(resources=GPU, env=[{"name": "A"}], volumeMounts=[{"name": "v", "mountPath": "/v"}]))
    return {PATH: review_of(KIND, made)}
