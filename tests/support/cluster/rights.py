"""The moment from which an API server grants the rights that a test applied, and no more those that it deleted.

The server watches roles and bindings, each of the four kinds in the order of writes. A right that is applied last and
granted therefore proves that it knows every earlier role and binding too.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from support.cluster.cluster import Cluster

_GROUP = "rbac.authorization.k8s.io"
_NAMESPACE = "default"
_numbers = itertools.count(1)
Json = dict[str, Any]


def cluster_role_binding(name: str, role: str, *subjects: Json) -> Json:
    """Return a binding of a ClusterRole to subjects."""
    head = {"apiVersion": f"{_GROUP}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}}
    return head | {"roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role}, "subjects": list(subjects)}


def until_rights_hold(cluster: Cluster) -> None:
    """Wait until the API server knows each role and binding that was written before this call."""
    name = f"rights-{next(_numbers)}.test.gkm.io"
    probes = list(_probes(name))
    cluster.apply(probes)
    try:
        for user in (f"everywhere-{name}", f"here-{name}"):
            cluster.until(lambda: _may(cluster, user), "the rights to hold")  # noqa: B023 -- called at once
    finally:
        for probe in probes:
            cluster.objects.delete(probe)


def _probes(name: str) -> Iterator[Json]:
    """Yield a role and its binding, for the whole cluster and for one namespace; each grants to its own user."""
    for kind, user, place in (
        ("ClusterRole", f"everywhere-{name}", {}),
        ("Role", f"here-{name}", {"namespace": _NAMESPACE}),
    ):
        head = {"apiVersion": f"{_GROUP}/v1", "metadata": {"name": user, **place}}
        yield head | {"kind": kind, "rules": [{"apiGroups": [_GROUP], "resources": [user], "verbs": ["get"]}]}
        bound = {"kind": "User", "apiGroup": _GROUP, "name": user}
        reference = {"apiGroup": _GROUP, "kind": kind, "name": user}
        yield head | {"kind": f"{kind}Binding", "roleRef": reference, "subjects": [bound]}


def _may(cluster: Cluster, user: str) -> bool:
    asked = {"verb": "get", "group": _GROUP, "resource": user, "namespace": _NAMESPACE}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = cluster.objects.as_user(user).create(review | {"spec": {"resourceAttributes": asked}})
    return bool(answer["status"]["allowed"])
