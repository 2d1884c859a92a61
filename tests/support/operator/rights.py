"""What the manifests that ship allow to our ServiceAccounts, one right at a time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import yaml
from support.cluster.audit import Request
from support.operator.deployment import ROOT, component, manifests

SYSTEM = "gkm-system"
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


BASE = sorted(granted(manifests()))
DOMAINS = sorted(granted(component("domains")))
SHIPPED = sorted([*BASE, *DOMAINS])
"""Those of deploy/base and of the component domains."""
RIGHTS = sorted([*SHIPPED, *granted(sample())])
"""The same, and what the sample opens besides."""
