"""Reviews of workloads as the API server requests them: the real reviewers on a view of an API in memory."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from gkm.api.domain_capacity import CONFIG_MAP, DomainCapacity
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, DOMAIN_LABEL, PART_OF, REPLICA_INDEX
from gkm.api.network_settings import Network
from gkm.kube.api import Api
from gkm.kube.resources import CLAIM_TEMPLATES, CLAIMS, COMPUTEDOMAINS, PODCLIQUESETS, Json, Resource
from gkm_operator.admission.domains.cluster_view import ClusterView
from gkm_operator.admission.domains.reviewer import ByteBudget, WorkloadReviewer, reviewers
from gkm_operator.computedomains.capacity import CapacityReport
from gkm_operator.computedomains.objects import of_set
from gkm_operator.computedomains.presence import Presence
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.required import SetDomainKey
from support.grove.json_patch import patched
from support.grove.objects import NAMESPACE, container, pod_clique_set
from support.host.waiting import until
from support.kube.fake_api import FakeApi

ON, OFF = Network(auto_mnnvl_enabled=True), Network()
SYSTEM = "gkm-system"
KINDS = {
    "/podcliquesets/default": ("grove.io", "v1alpha1", "PodCliqueSet"),
    "/podcliquesets/validate": ("grove.io", "v1alpha1", "PodCliqueSet"),
    "/podcliques": ("grove.io", "v1alpha1", "PodClique"),
    "/podcliquescalinggroups": ("grove.io", "v1alpha1", "PodCliqueScalingGroup"),
    "/pods": ("", "v1", "Pod"),
}


def as_json(resource: Resource[Any]) -> Resource[Json]:
    return Resource(resource.api_version, resource.kind, resource.plural, namespaced=resource.namespaced, type=Json)


SETS, DOMAINS = as_json(PODCLIQUESETS), as_json(COMPUTEDOMAINS)
BY_KIND = {one.kind: as_json(one) for one in (PODCLIQUESETS, COMPUTEDOMAINS, CLAIM_TEMPLATES, CLAIMS)}


def review(path: str, reviewed: Json | None, old: Json | None = None, **changes: Any) -> bytes:  # noqa: ANN401 -- JSON
    """Return the AdmissionReview that an API server sends to a path of the domains."""
    return review_of(KINDS[path], reviewed, old, **changes)


def review_of(
    reviewed_kind: tuple[str, str, str],
    reviewed: Json | None,
    old: Json | None = None,
    **changes: Any,  # noqa: ANN401 -- JSON
) -> bytes:
    """Return the AdmissionReview of an object of any kind."""
    group, version, kind = reviewed_kind
    metadata = (reviewed or old or {}).get("metadata", {})
    request = {
        "uid": "u-1",
        "kind": {"group": group, "version": version, "kind": kind},
        "operation": "UPDATE" if old else "CREATE",
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", NAMESPACE),
        "object": reviewed,
        "oldObject": old,
        "userInfo": {"username": "somebody"},
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request | changes}
    return json.dumps(body).encode()


@dataclass(frozen=True)
class Answer:
    """The response to a request; `object` is the reviewed object with the patch applied."""

    allowed: bool
    message: str
    warnings: str
    object: Json
    changed: bool

    @property
    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.object["metadata"].get("annotations") or {}
        return found

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.object["metadata"].get("labels") or {}
        return found

    def claims(self, at: str = "podSpec") -> dict[str, list[str]]:
        """Return the claims of the containers of the pod specification, by container, those without left out."""
        spec = self.object["spec"][at] if at else self.object["spec"]
        containers = [*spec.get("initContainers", ()), *spec["containers"]]
        found = {each["name"]: [one["name"] for one in each["resources"].get("claims") or ()] for each in containers}
        return {name: claims for name, claims in found.items() if claims}

    def templates(self, at: str = "podSpec") -> dict[str, str]:
        """Return the claim templates of the pod specification, by claim."""
        spec = self.object["spec"][at] if at else self.object["spec"]
        return {one["name"]: one.get("resourceClaimTemplateName", "") for one in spec.get("resourceClaims") or ()}


def answer(body: bytes, reviewed: Json) -> Answer:
    """Return the response in an AdmissionReview."""
    response = json.loads(body)["response"]
    assert response["uid"] == "u-1"
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    assert ("patch" in response) == (response.get("patchType") == "JSONPatch")
    return Answer(
        response["allowed"],
        response.get("status", {}).get("message", ""),
        " ".join(response.get("warnings", ())),
        patched(reviewed, patch),
        bool(patch),
    )


def publish(api: Api, capacity: DomainCapacity | None = None, *, grove_manages: bool | None = False) -> None:
    """Write the ConfigMap gkm-domains as the controllers do; `grove_manages` is None while they do not know it."""
    conditions = Presence(available=True, grove_manages=grove_manages, since="2026-01-01T00:00:00Z").conditions
    CapacityReport(api, SYSTEM, capacity=lambda: capacity, conditions=conditions).write(CONFIG_MAP)


@dataclass
class Workloads:
    """A cluster, a view of it that may lag behind, and the reviewers by path."""

    settings: Network = ON
    api: FakeApi = field(default_factory=FakeApi)
    view: ClusterView = field(init=False)
    reviewers: dict[str, WorkloadReviewer[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.view = ClusterView(self.api, self.api, SYSTEM)
        self.reviewers = dict(reviewers(self.view, self.settings, ByteBudget()))
        self.publish()

    def review(self, path: str, reviewed: Json, old: Json | None = None, **changes: Any) -> Answer:  # noqa: ANN401 -- JSON
        """Return the response to a request about an object."""
        body = review(path, reviewed, old, **changes)
        return answer(self.reviewers[path](lambda: body, lambda: None), reviewed)

    def put(self, *objects: Json) -> None:
        """Create objects in the cluster."""
        for one in objects:
            self.api.create(BY_KIND[one["kind"]], one)

    def create_set(self, made: Json, *keys: SetDomainKey) -> PodCliqueSet:
        """Create a PodCliqueSet, and these domains of it as the controllers write them."""
        found = msgspec.convert(self.api.create(SETS, made), PodCliqueSet)
        for key in keys:
            desired = of_set(found, key)
            self.api.create(DOMAINS, desired.manifest(desired.names[0], "2026-01-01T00:00:00Z"))
        return found

    def publish(self, capacity: DomainCapacity | None = None, *, grove_manages: bool | None = False) -> None:
        """Write the ConfigMap gkm-domains."""
        publish(self.api, capacity, grove_manages=grove_manages)

    def clear(self) -> None:
        """Delete all sets and domains."""
        with self.api._lock:
            self.api._objects.clear()
        self.publish()
        self.observe()

    def observe(self) -> None:
        """Let the view list everything once; it watches nothing."""
        for reflector in self.view.watches():
            reflector._list()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Let the view list and watch until the block ends."""
        for reflector in self.view.watches():
            reflector.start()
        try:
            yield
        finally:
            for reflector in self.view.watches():
                reflector.close()

    def until(self, probe: Callable[[], object], what: str) -> None:
        """Wait until the view shows something."""
        until(lambda: bool(probe()), what)


def workloads(*objects: Json, settings: Network = ON) -> Workloads:
    """Return a cluster with these objects, observed."""
    made = Workloads(settings)
    made.put(*objects)
    made.observe()
    return made


def enrolled_set(name: str = "coyote") -> Workloads:
    """Return a cluster with one enrolled set, whose only domain exists."""
    made = Workloads()
    annotations = {AUTO_MNNVL: dialect.ENABLED}
    made.create_set(pod_clique_set(name, annotations=annotations), SetDomainKey(0, dialect.WHOLE_SET))
    made.observe()
    return made


def reviewed_objects(of: str = "coyote") -> dict[str, Json]:
    """Return an object of each kind by its path, as it passes; those of Grove belong to a set."""
    labels = {PART_OF: of, REPLICA_INDEX: "0"}
    pod_spec = {"containers": [container("main", 8), container("side")]}
    member = {"namespace": NAMESPACE, "labels": labels}
    found = pod_clique_set("another", annotations={AUTO_MNNVL: dialect.ENABLED})
    return {
        "/podcliquesets/default": pod_clique_set("another"),
        "/podcliquesets/validate": found,
        "/podcliques": {"metadata": {"name": f"{of}-0-worker", **member}, "spec": {"podSpec": pod_spec}},
        "/podcliquescalinggroups": {"metadata": {"name": f"{of}-0-sg", **member}, "spec": {"replicas": 1}},
        "/pods": {"metadata": {"generateName": "x-", "labels": {DOMAIN_LABEL: f"{of}-0"}}, "spec": pod_spec},
    }
