"""The admission of group templates on a real kube-apiserver: the webhooks, account, rights and policies that ship."""

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, Resource
from support.cluster.gkm_objects import namespace
from support.cluster.objects import RequestFailed
from support.cluster.policies import until_policies_hold
from support.host.directories import of_directory
from support.kube.our_kinds import status_writer
from support.operator.admission_process import AdmissionSite
from support.operator.deployment import called_here, component
from support.operator.domain_cluster import domain_cluster
from support.operator.group_templates import (
    GROUPS,
    POOL_OBJECTS,
    TEMPLATES,
    Json,
    pool,
    template,
)

TEAM, SYSTEM, DRY_RUNS = "team", "gkm-system", "gkm-dry-runs"
PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=dict)
NAMESPACES: Resource[Json] = Resource("v1", "Namespace", "namespaces", namespaced=False, type=dict)
BY_KIND = {one.kind: one for one in (TEMPLATES, POOL_OBJECTS, GROUPS, PODS, CONFIGMAPS)}
CONFIG = {
    "taskGroups": {
        "enabled": True,
        "allowedKinds": [
            {"kind": "ConfigMap"},
            {"kind": "Service"},
            {"kind": "Namespace"},
            {"kind": "Secret"},
            {"kind": "ComputeDomain", "group": "resource.nvidia.com"},
            {"kind": "PodGroup", "group": "scheduling.x-k8s.io"},
        ],
    },
    "network": {"placement": "preferred"},
}


class Site(AdmissionSite):
    """The cluster with the webhooks of group templates."""

    def start(self) -> None:
        """Start the webhook (again) and wait until the API server calls it."""
        self.serve(CONFIG, "gkm-task-groups", "--task-groups=on")
        probe = template("probe", {"kind": "x"})
        self.cluster.until(lambda: "apiVersion is missing" in self.refusal(probe), "the webhook is called")

    def create(self, value: Json, api: Api | None = None) -> Json:
        """Create an object; try again while GKM cannot decide, because an API server stood still for two seconds."""

        def created() -> Json | None:
            try:
                return (api or self.api).create(BY_KIND[value["kind"]], value)
            except ApiError as error:
                if "GKM cannot decide" not in error.message:
                    raise
                return None

        return self.cluster.until(created, "a decision of the webhook")

    def refusal(self, value: Json, api: Api | None = None) -> str:
        try:
            self.create(value, api)
        except ApiError as error:
            return error.message
        return ""

    def refusal_of_a_try(self, value: Json) -> str:
        """Return why an object is refused; nothing is stored if it is not."""
        try:
            self.cluster.objects.create(value, dry_run=True)
        except RequestFailed as refused:
            return str(refused)
        return ""

    def warnings(self, value: Json) -> str:
        """Create an object; return the warnings that its user sees."""
        return "\n".join(self.cluster.objects.warnings(value, dry_run=False))

    def plan(self, value: Json) -> None:
        """Create a TaskGroup with the status that the controllers would write."""
        created = copy.deepcopy(value)
        status = created.pop("status")
        self.create(created)
        controllers = connect(str(status_writer(self.cluster)))
        metadata = {"name": value["metadata"]["name"], "namespace": TEAM}
        head = {"apiVersion": "gkm.io/v1alpha1", "kind": "TaskGroup", "metadata": metadata}
        controllers.apply(GROUPS, head | {"status": status}, field_manager="gkm", subresource="status")

    def api_of(self, user: str, *groups: str) -> Api:
        return connect(str(self.cluster.kubeconfig_for(user, groups)))


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return of_directory(request, partial(opened_site, tmp_path_factory))


@contextmanager
def opened_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("admission")
    with domain_cluster(tmp_path_factory.mktemp("cluster")) as place, ExitStack() as stack:
        cluster = place.cluster
        cluster.apply([namespace(TEAM), namespace("other"), *authors()])
        cluster.until(lambda: cluster.exists("serviceaccount", "default", TEAM), "its account")
        made = Site(cluster, connect(str(cluster.kubeconfig)), stack, directory)
        found = component("task-groups")
        cluster.apply([called_here(one, made.port) if "webhooks" in one else one for one in found])
        until_policies_hold(cluster)
        made.start()
        made.create(pool("pool"))  # what a group names unless a test says otherwise
        yield made


def authors() -> list[Json]:
    """Rights for users who write templates, of whom some may create ConfigMaps."""
    group_name = "rbac.authorization.k8s.io"
    rules = {
        "templates": [{"apiGroups": ["gkm.io"], "resources": ["grouptemplates"], "verbs": ["*"]}],
        "config-maps": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
    }
    head = {"apiVersion": f"{group_name}/v1"}
    roles = [head | {"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules[name]} for name in rules]

    def bound(name: str, role: str, kind: str, subject: str, space: str = "") -> Json:
        binding = {"kind": "RoleBinding" if space else "ClusterRoleBinding"}
        metadata = {"name": name} | ({"namespace": space} if space else {})
        reference = {"apiGroup": group_name, "kind": "ClusterRole", "name": role}
        subjects = [{"apiGroup": group_name, "kind": kind, "name": subject}]
        return head | binding | {"metadata": metadata, "roleRef": reference, "subjects": subjects}

    return [
        *roles,
        bound("authors", "templates", "Group", "authors"),
        bound("alice", "config-maps", "User", "alice"),
        bound("platform", "config-maps", "Group", "platform"),
        bound("eve", "config-maps", "User", "eve", TEAM),
    ]
