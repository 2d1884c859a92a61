"""What the manifests that ship allow to our ServiceAccounts, one right at a time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import yaml
from gkm.api.features import Feature
from support.cluster.audit import Request
from support.operator.deployment import ROOT, component, manifests

SYSTEM = "gkm-system"
CREATED = 201
PREFIX = f"system:serviceaccount:{SYSTEM}:"
Json = dict[str, Any]


@dataclass(frozen=True, order=True)
class Right:
    """One thing that an account may do; an empty name or namespace is any."""

    account: str
    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""

    def covers(self, request: Request) -> bool:
        asked = (request.user, request.verb, request.group, request.resource)
        return (
            asked == (f"{PREFIX}{self.account}", self.verb, self.group, self.resource)
            and self.name in ("", request.name)
            and self.namespace in ("", request.namespace)
        )


def authorized(requests: Iterable[Request]) -> Iterator[Request]:
    """Yield the authorized verbs: patch and create for a server-side apply that created its object."""
    for request in requests:
        yield request
        if request.verb == "patch" and request.code == CREATED:
            yield replace(request, verb="create")


def granted(documents: list[Json]) -> Iterator[Right]:
    """Yield what the bindings among these objects give to our accounts."""
    roles = {
        (found["kind"], found["metadata"].get("namespace", ""), found["metadata"]["name"]): found["rules"]
        for found in documents
        if found["kind"] in {"Role", "ClusterRole"}
    }
    for binding in documents:
        if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        namespace = binding["metadata"].get("namespace", "")
        role = binding["roleRef"]
        rules = roles[role["kind"], namespace if role["kind"] == "Role" else "", role["name"]]
        for subject, rule in product(binding["subjects"], rules):
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", SYSTEM)
            yield from expanded(subject["name"], rule, namespace)


def expanded(account: str, rule: Json, namespace: str) -> Iterable[Right]:
    """Yield the rights of a rule; no account needs a wildcard, so `*` would be a resource that no process requests."""
    parts = (rule["verbs"], rule["apiGroups"], rule["resources"], rule.get("resourceNames", [""]))
    for verb, group, resource, name in product(*parts):
        yield Right(account, verb, group, resource, name, namespace)


def sample() -> list[Json]:
    """Return what deploy/samples/pull-secret.yaml opens."""
    return list(yaml.safe_load_all((ROOT / "deploy" / "samples" / "pull-secret.yaml").read_text(encoding="utf-8")))


_ADDS_NO_RIGHT = Feature.TOPOLOGY_HYGIENE
COMPONENTS = (
    *(each.component.rpartition("/")[2] for each in Feature if each is not _ADDS_NO_RIGHT),
    "topology-infiniband",
)
"""Directories of the manifests that add rights: one for each feature, and a provider."""
_BY_COMPONENT = {name: sorted(granted(component(name))) for name in COMPONENTS}
BASE = sorted(granted(manifests()))
DOMAINS, TASK_GROUPS, POD_CACHES = (_BY_COMPONENT[name] for name in ("domains", "task-groups", "pod-caches"))
TOPOLOGY = sorted(
    right for name in ("topology", "topology-infiniband", "topology-labels") for right in _BY_COMPONENT[name]
)
SHIPPED = sorted({*BASE, *(right for rights in _BY_COMPONENT.values() for right in rights)})
"""Those of deploy/base and of the components, which share some."""
_CERTIFICATES = "admissionregistration.k8s.io"
_ALSO_OFF = {
    ("list", "taskgroups", ""),
    ("watch", "taskgroups", ""),
    ("get", "configmaps", "gkm-task-group-kinds"),
}
"""What the controllers use of them while `taskGroups.enabled` is off: they wait for deleted TaskGroups."""
_USED = [
    right
    for right in TASK_GROUPS
    if right.account == "gkm-admission"
    or right.group == _CERTIFICATES
    or (right.verb, right.resource, right.name) in _ALSO_OFF
]
RIGHTS = sorted({*BASE, *DOMAINS, *_USED, *TOPOLOGY, *POD_CACHES, *granted(sample())})
"""What the processes use in tests/partners/operator/test_rights_exactly_used.py, and what the sample opens besides.

The controllers use the others for group templates in test_task_groups_disturbed.py.
"""
