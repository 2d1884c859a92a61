"""A real API server with Grove's and NVIDIA's kinds, in which tests plant the faults that `gkm doctor` finds.

The controller-manager is stopped meanwhile: it would delete what has no owner. Every fault is removed by its block.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.resources import Resource
from support.chart.deploy_files import rendered
from support.cli.command import gkm
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.cluster.rights import until_rights_hold
from support.grove.kinds import ALL
from support.grove.objects import NAMESPACE

Json = dict[str, Any]
USER = "doctor"
PLURALS = {
    "DeviceClass": "deviceclasses",
    "ClusterRole": "clusterroles",
    "ConfigMap": "configmaps",
    "CustomResourceDefinition": "customresourcedefinitions",
    "Node": "nodes",
    "Pod": "pods",
}


@dataclass(frozen=True)
class Site:
    """The cluster, and the administrator's client."""

    cluster: Cluster
    api: Api

    def doctor(self, *arguments: str, user: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command as the administrator or a user; without a grace period, because planted faults are new."""
        kubeconfig = self.cluster.kubeconfig_for(user) if user else self.cluster.kubeconfig
        return gkm("doctor", "--kubeconfig", kubeconfig, "--check", "domains", "--grace", "0", *arguments)

    def findings(self, *arguments: str, user: str = "") -> tuple[int, list[Json]]:
        """Return the exit code and the list for programs."""
        done = self.doctor("-o", "json", *arguments, user=user)
        found: list[Json] = json.loads(done.stdout)
        return done.returncode, found

    @contextmanager
    def planted(self, *objects: Json) -> Iterator[list[str]]:
        """Create objects with their statuses, and delete them at the end; yield their uids."""
        with ExitStack() as stack:
            uids = []
            for made in objects:
                resource = _resource(made)
                uids.append(self.api.create(resource, made)["metadata"]["uid"])
                stack.callback(self.cluster.objects.delete, made)
                if "status" in made:
                    head = {key: made[key] for key in ("apiVersion", "kind", "metadata", "status")}
                    self.api.apply(resource, head, field_manager="tests", subresource="status")
            yield uids


def problems(found: Sequence[Json]) -> list[tuple[str, str, str]]:
    """Return severity, check and object of every finding that is neither ok nor skipped."""
    return sorted(
        (one["severity"], one["check"], one["object"]) for one in found if one["severity"] not in ("ok", "skipped")
    )


def shipped_role() -> Json:
    """Return the ClusterRole for readers."""
    roles: list[Json] = list(yaml.load_all((rendered() / "base" / "users.yaml").read_text(), yaml.CSafeLoader))
    return next(role for role in roles if role["metadata"]["name"] == "gkm-reader")


def bind(site: Site, role: Json) -> None:
    """Give the role to USER."""
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": USER},
        "roleRef": reference,
        "subjects": [subject],
    }
    site.cluster.apply([role, binding])
    until_rights_hold(site.cluster)


@contextmanager
def site(directory: Path) -> Iterator[Site]:
    """Start an API server with the kinds and one namespace."""
    with Cluster.start(directory) as cluster:
        cluster.apply([*ALL, namespace(NAMESPACE), namespace("gkm-system")])
        cluster.until_kinds_established()
        cluster.until(lambda: cluster.exists("serviceaccount", "default", NAMESPACE), "the service account")
        with cluster.control_plane.stalled("kube-controller-manager"):
            yield Site(cluster, connect(str(cluster.kubeconfig)))


def _resource(made: Json) -> Resource[Json]:
    plural = PLURALS.get(made["kind"], f"{made['kind'].lower()}s")
    return Resource(made["apiVersion"], made["kind"], plural, "namespace" in made["metadata"], dict)
