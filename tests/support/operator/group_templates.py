"""Reviews of templates, pools and groups as the API server requests them: the real reviewers, on an API in memory.

The renderer is the real one. What only an API server knows is a table of the test: kinds, rights, and its refusals.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gkm.api.network_settings import Network
from gkm.api.task_group_settings import TaskGroups
from gkm.api.task_groups import GROUP_LABEL
from gkm.kube.resources import GROUPTEMPLATES, POOLS, TASKGROUPS, Resource
from gkm.templates.rendering.process import RenderingProcess
from gkm_operator.admission.domains.cluster_view import ClusterView, ViewUnavailable
from gkm_operator.admission.domains.requests import UserInfo
from gkm_operator.admission.domains.reviewer import ByteBudget, WorkloadReviewer
from gkm_operator.admission.groups.cluster_view import ObjectRefused, ObservedTemplates, Partners
from gkm_operator.admission.groups.reviewer import reviewers
from support.grove.objects import container
from support.kube.fake_api import FakeApi
from support.operator.workloads import SYSTEM, Answer, answer, as_json, review_of

Json = dict[str, Any]
SPACE = "team"
KINDS = {
    "/grouptemplates": ("gkm.io", "v1alpha1", "GroupTemplate"),
    "/grouptemplates/delete": ("gkm.io", "v1alpha1", "GroupTemplate"),
    "/pools": ("gkm.io", "v1alpha1", "Pool"),
    "/taskgroups": ("gkm.io", "v1alpha1", "TaskGroup"),
    "/taskgroups/pods": ("", "v1", "Pod"),
}
TEMPLATES, POOL_OBJECTS, GROUPS = as_json(GROUPTEMPLATES), as_json(POOLS), as_json(TASKGROUPS)
BY_KIND = {one.kind: one for one in (TEMPLATES, POOL_OBJECTS, GROUPS)}
NAMESPACED = {
    ("v1", "ConfigMap"): "configmaps",
    ("v1", "Service"): "services",
    ("apps/v1", "Deployment"): "deployments",
    ("resource.nvidia.com/v1beta1", "ComputeDomain"): "computedomains",
    ("resource.nvidia.com/v1", "ComputeDomain"): "computedomains",
}
DOMAIN: Json = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "ComputeDomain",
    "metadata": {"name": "compute-domain-{{WF_GROUP_UUID}}"},
    "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "osmo-{{ WF_GROUP_UUID }}"}}},
}


def config_map(name: str = "settings", **fields: Any) -> Json:  # noqa: ANN401 -- JSON
    """Return a ConfigMap as a template has it."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} | fields


def template(name: str = "one", value: Json | None = None, **spec: Any) -> Json:  # noqa: ANN401 -- JSON
    """Return a GroupTemplate of this object."""
    head = {"apiVersion": "gkm.io/v1alpha1", "kind": "GroupTemplate", "metadata": {"name": name}}
    return head | {"spec": {"template": copy.deepcopy(value or config_map()), **spec}}


def pool(name: str = "pool", *templates: str) -> Json:
    """Return a Pool of these templates."""
    head = {"apiVersion": "gkm.io/v1alpha1", "kind": "Pool", "metadata": {"name": name}}
    return head | {"spec": {"commonGroupTemplates": list(templates)} if templates else {}}


def held(value: Json) -> Json:
    """Return an object with a finalizer of another controller: after its deletion, it stays."""
    return value | {"metadata": value["metadata"] | {"finalizers": ["test.example/held"]}}


def group(name: str = "train", of: str = "pool", tasks: int = 4, **spec: Any) -> Json:  # noqa: ANN401 -- JSON
    """Return a TaskGroup as its validating webhook gets it."""
    metadata = {"name": name, "namespace": SPACE, "uid": "uid-of-the-group"}
    made = [{"name": f"task-{number}", "gpus": 8} for number in range(tasks)]
    head = {"apiVersion": "gkm.io/v1alpha1", "kind": "TaskGroup", "metadata": metadata}
    return head | {"spec": {"pool": of, "tasks": made, **spec}}


def planned(name: str = "train", *objects: Json, phase: str = "Running") -> Json:
    """Return a TaskGroup whose status has these objects."""
    listed = [
        {"apiVersion": one["apiVersion"], "kind": one["kind"], "name": one["metadata"]["name"], "manifest": one}
        for one in objects
    ]
    return group(name) | {"status": {"phase": phase, "objects": listed}}


def task_pod(name: str = "train", gpus: int = 8, labels: Json | None = None, **spec: Any) -> Json:  # noqa: ANN401 -- JSON
    """Return a pod of a TaskGroup, with a container that requests GPUs and one that does not."""
    metadata = {"generateName": "task-", "namespace": SPACE, "labels": {GROUP_LABEL: name, **(labels or {})}}
    containers = [container("main", gpus), container("side")]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


@dataclass
class CheckTable:
    """`view.ClusterChecks` as a test sets it. `refuse` raises what a dry run would."""

    kinds: dict[tuple[str, str], Resource[Json]] = field(default_factory=dict)
    creators: frozenset[str] = frozenset({"author"})
    away: bool = False
    refuse: Callable[[Json], str] = lambda _: ""
    dry_runs: list[Json] = field(default_factory=list)
    asked: list[tuple[UserInfo, str, str]] = field(default_factory=list)
    recording: bool = True

    def __post_init__(self) -> None:
        for (version, kind), plural in NAMESPACED.items():
            self.kinds[version, kind] = Resource(version, kind, plural, namespaced=True, type=dict)

    def served(self, value: Json) -> Resource[Json] | None:
        if self.away:
            raise ViewUnavailable("the API server does not answer")
        return self.kinds.get((value["apiVersion"], value["kind"]))

    def may_create(self, user: UserInfo, group: str, plural: str) -> bool:
        if self.recording:
            self.asked.append((user, group, plural))
        return user.username in self.creators

    def dry_run(self, resource: Resource[Json], value: Json) -> str:
        assert resource.kind == value["kind"]
        if self.recording:
            self.dry_runs.append(value)
        return self.refuse(value)


def refusing(message: str, *, incomplete: bool = False) -> Callable[[Json], str]:
    """Return a dry run that the API server refuses."""

    def refuse(_: Json) -> str:
        raise ObjectRefused(message, incomplete=incomplete)

    return refuse


@dataclass
class GroupTemplates:
    """A cluster with templates and pools, a view of it that may lag behind, and the reviewers by path."""

    renderer: RenderingProcess
    settings: TaskGroups = field(default_factory=lambda: TaskGroups(enabled=True))
    network: Network = field(default_factory=Network)
    api: FakeApi = field(default_factory=FakeApi)
    checks: CheckTable = field(default_factory=CheckTable)
    observed: ObservedTemplates = field(init=False)
    reviewers: dict[str, WorkloadReviewer[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.observed = ObservedTemplates(self.api, self.api)
        partners = Partners(self.observed, self.checks, self.renderer, self.settings)
        view = ClusterView(self.api, self.api, SYSTEM)
        self.reviewers = dict(reviewers(view, partners, self.network, ByteBudget()))

    def put(self, *objects: Json) -> None:
        """Create objects in the cluster, unseen by the view, as if no webhook had reviewed them."""
        for one in objects:
            self.api.create(BY_KIND[one["kind"]], one)
            if "status" in one:
                self.api.apply(BY_KIND[one["kind"]], one, field_manager="test", subresource="status")

    def observe(self) -> None:
        """Let the view list everything once; it watches nothing."""
        for reflector in self.observed.watches():
            reflector._list()

    def review(self, path: str, reviewed: Json | None, old: Json | None = None, **changes: Any) -> Answer:  # noqa: ANN401 -- JSON
        """Return the response to a request about an object; its user is `author`."""
        body = review_of(KINDS[path], reviewed, old, **({"userInfo": {"username": "author"}} | changes))
        return answer(self.reviewers[path](lambda: body, lambda: None), reviewed or old or {})

    def write(self, reviewed: Json, **changes: Any) -> Answer:  # noqa: ANN401 -- JSON
        """Return the response to the creation of a template, pool or group."""
        paths = {"GroupTemplate": "/grouptemplates", "Pool": "/pools", "TaskGroup": "/taskgroups"}
        return self.review(paths[reviewed["kind"]], reviewed, **changes)

    def delete(self, name: str) -> Answer:
        """Return the response to the deletion of a template."""
        return self.review("/grouptemplates/delete", None, template(name), operation="DELETE")

    def admit(self, reviewed: Json) -> Answer:
        """Return the response to the creation of a task pod."""
        return self.review("/taskgroups/pods", reviewed)


def filled(renderer: RenderingProcess) -> GroupTemplates:
    """Return a cluster with a pool, its template and a planned group, observed; it records no requests."""
    made = GroupTemplates(renderer)
    made.checks.recording = False
    made.put(template(), pool("pool", "one"), planned("train", DOMAIN))
    made.observe()
    return made


def reviews() -> dict[str, bytes]:
    """Return a review by path that passes in the cluster of `filled`."""
    found: dict[str, tuple[Json | None, Json | None, str]] = {
        "/grouptemplates": (template("another"), None, "CREATE"),
        "/grouptemplates/delete": (None, template("free"), "DELETE"),
        "/pools": (pool("another", "one"), None, "CREATE"),
        "/taskgroups": (group(), None, "CREATE"),
        "/taskgroups/pods": (task_pod(), None, "CREATE"),
    }
    user = {"username": "author"}
    return {
        path: review_of(KINDS[path], new, old, operation=operation, userInfo=user)
        for path, (new, old, operation) in found.items()
    }


@contextmanager
def rendering() -> Iterator[RenderingProcess]:
    """Run a renderer."""
    process = RenderingProcess()
    try:
        yield process
    finally:
        process.close()
