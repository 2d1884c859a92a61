"""The admission of group templates on a real kube-apiserver: the webhooks, account, rights and policies that ship."""

import copy
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, Resource
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.cluster.policies import until_policies_hold
from support.host import pages, ports
from support.host.processes import Process
from support.kube.our_kinds import status_writer
from support.operator.deployment import called_here, component, operator
from support.operator.domain_cluster import domain_cluster
from support.operator.group_templates import (
    GROUPS,
    POOL_OBJECTS,
    TEMPLATES,
    Json,
    template,
)
from support.peers import build as peers

TEAM, SYSTEM, DRY_RUNS = "team", "gkm-system", "gkm-dry-runs"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:gkm-admission"
PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=dict)
NAMESPACES: Resource[Json] = Resource("v1", "Namespace", "namespaces", namespaced=False, type=dict)
BY_KIND = {one.kind: one for one in (TEMPLATES, POOL_OBJECTS, GROUPS, PODS, CONFIGMAPS)}
CONFIG = {
    "taskGroups": {
        "allowedKinds": [
            {"kind": "ConfigMap"},
            {"kind": "Service"},
            {"kind": "Namespace"},
            {"kind": "Secret"},
            {"kind": "ComputeDomain", "group": "resource.nvidia.com"},
            {"kind": "PodGroup", "group": "scheduling.x-k8s.io"},
        ]
    },
    "network": {"placement": "preferred"},
}


@dataclass
class Site:
    """The cluster, its administrator's API, and the process of the webhook."""

    cluster: Cluster
    api: Api
    stack: ExitStack
    directory: Path
    port: int = field(default_factory=ports.free)
    health: str = field(default_factory=lambda: f"127.0.0.1:{ports.free()}")
    process: Process = field(init=False)

    def start(self) -> None:
        """Start the webhook (again) and wait until the API server calls it."""
        config = self.directory / "config.yaml"
        config.write_text(yaml.safe_dump(CONFIG))
        arguments = (
            "admission",
            f"--config={config}",
            f"--listen=127.0.0.1:{self.port}",
            f"--health={self.health}",
            f"--self-signed={self.directory / 'tls'}",
            "--tls-names=127.0.0.1",
            "--webhook-configuration=mutating/gkm-task-groups",
            "--webhook-configuration=validating/gkm-task-groups",
            "--task-groups=on",
            f"--kubeconfig={self.cluster.kubeconfig_for(ACCOUNT)}",
        )
        self.process = self.stack.enter_context(operator(self.directory, *arguments))
        self.process.ready(lambda: pages.fetch(self.health, "readyz")[0] == 200, "it serves")
        probe = template("probe", {"kind": "x"})
        self.cluster.until(lambda: "apiVersion is missing" in self.refusal(probe), "the webhook is called")

    def create(self, value: Json) -> Json:
        return self.api.create(BY_KIND[value["kind"]], value)

    def refusal(self, value: Json, api: Api | None = None) -> str:
        try:
            (api or self.api).create(BY_KIND[value["kind"]], value)
        except ApiError as error:
            return error.message
        return ""

    def warnings(self, value: Json) -> str:
        """Create an object; return the warnings that its user sees."""
        command: list[str | Path] = [peers.binary("kubectl"), f"--kubeconfig={self.cluster.kubeconfig}"]
        done = subprocess.run(
            [*command, "create", "-f-"],
            input=yaml.safe_dump(value),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stderr

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
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
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
