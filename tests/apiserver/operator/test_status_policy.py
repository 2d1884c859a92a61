"""Only the controllers can write that a cache is verified, on a real API server with deploy/base installed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Json, Resource
from support.cluster.cluster import Cluster
from support.cluster.objects import Objects, refusal
from support.kube.our_kinds import CONTROLLERS
from support.operator.deployment import cache

NAMESPACE, NODE = "status-policy", "status-policy-node"
NAME, IMAGE = "claimed", "registry.test/team/cache:1"
VERIFIED = {
    "type": "Verified",
    "status": "True",
    "reason": "CosignSuccess",
    "message": "believe me",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
FORGED = {"image": IMAGE, "resolvedDigest": f"sha256:{'0' * 64}", "conditions": [VERIFIED]}
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:default"
REFUSED = f"only {CONTROLLERS} writes the status of a cache, and this is "

ALL_MIGHTY: dict[str, Callable[[Cluster], Objects]] = {
    "admin": lambda cluster: cluster.objects,
    "editor": lambda cluster: cluster.objects.as_user("status-editor"),
    ACCOUNT: lambda cluster: cluster.objects.as_user(ACCOUNT),
}
"""Who is known by these names, and has every right on our kinds: what stops them is the policy alone."""


@pytest.fixture(scope="module")
def place(gkm_cluster: Cluster) -> Iterator[Cluster]:
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    group = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    metadata = {"metadata": {"name": NAMESPACE}}
    rules = [{"apiGroups": ["gkm.io"], "resources": ["*"], "verbs": ["*"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAMESPACE}
    subjects = [
        {"kind": "User", "name": "status-editor"},
        {"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE},
    ]
    gkm_cluster.apply(group | metadata | {"kind": "ClusterRole", "rules": rules})
    gkm_cluster.apply(group | metadata | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects})
    gkm_cluster.until(lambda: gkm_cluster.exists("serviceaccount", "default", NAMESPACE), "a service account")
    try:
        yield gkm_cluster
    finally:
        for kind in ("clusterrolebinding", "clusterrole", "namespace"):
            gkm_cluster.objects.ask_to_delete(kind, NAMESPACE)
        gkm_cluster.objects.ask_to_delete("node", NODE)


@pytest.fixture(params=[NAMESPACE, None], ids=["GKMCache", "ClusterGKMCache"])
def claimed(place: Cluster, request: pytest.FixtureRequest) -> Iterator[Json]:
    """A cache without a status."""
    namespace: str | None = request.param
    resource = of(namespace)
    admin = connect(str(place.kubeconfig))
    value = cache(NAME, IMAGE, namespace)
    admin.create(resource, value)
    try:
        yield value
    finally:
        admin.delete(resource, NAME, namespace)


def of(namespace: str | None) -> Resource[Any]:
    return GKMCACHES if namespace else CLUSTERGKMCACHES


def refused(objects: Objects, value: Json, dry_run: bool) -> str:  # noqa: FBT001 -- a case
    """Patch the status as a user; return the API server's error, "" on success."""
    where, patch = (value["kind"], NAME), {"status": FORGED}
    space = value["metadata"].get("namespace")
    return refusal(lambda: objects.merge(*where, patch, space, subresource="status", dry_run=dry_run))


def written(cluster: Cluster, value: Json) -> object:
    return cluster.get(value["kind"], NAME, value["metadata"].get("namespace")).get("status")


@pytest.mark.parametrize("dry_run", [False, True], ids=["written", "dry-run"])
@pytest.mark.parametrize("who", ALL_MIGHTY)
def test_an_account_with_all_rights_still_writes_no_status(
    place: Cluster,
    claimed: Json,
    who: str,
    dry_run: bool,  # noqa: FBT001 -- a case
) -> None:
    objects = ALL_MIGHTY[who](place)
    place.until(lambda: "cannot" not in refused(objects, claimed, dry_run), "the rights to be known")
    name = "status-editor" if who == "editor" else who
    assert f"{REFUSED}{name}" in refused(objects, claimed, dry_run)
    assert written(place, claimed) is None


def test_an_agent_writes_no_status(place: Cluster, claimed: Json) -> None:
    resource = of(claimed["metadata"].get("namespace"))
    agent = connect(str(place.kubeconfig_for("system:serviceaccount:gkm-system:gkm-agent", node=NODE)))
    with pytest.raises(ApiError) as caught:
        agent.apply(resource, claimed | {"status": FORGED}, field_manager="gkm-agent", subresource="status")
    assert caught.value.status == 403
    assert written(place, claimed) is None


def test_the_controllers_write_it(place: Cluster, claimed: Json) -> None:
    resource = of(claimed["metadata"].get("namespace"))
    api = connect(str(place.kubeconfig_for(CONTROLLERS)))
    api.apply(resource, claimed | {"status": FORGED}, field_manager="gkm-operator", subresource="status")
    assert written(place, claimed) == FORGED


def test_an_administrator_still_writes_all_but_the_status(place: Cluster, claimed: Json) -> None:
    namespace = claimed["metadata"].get("namespace")
    resource = of(namespace)
    admin = connect(str(place.kubeconfig))
    labels = {"metadata": {"labels": {"touched": "yes"}}, "spec": {"image": "registry.test/team/cache:2"}}
    changed = admin.merge(resource, NAME, labels, namespace)
    assert (changed.metadata.labels, changed.spec.image) == ({"touched": "yes"}, "registry.test/team/cache:2")
    assert written(place, claimed) is None


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("value", ["", "x"])
def test_only_the_controllers_write_the_marks_of_captured_caches(place: Cluster, part: str, value: str) -> None:
    api = connect(str(place.kubeconfig))
    marks = {part: {"gkm.io/captured-namespace": value}}
    with pytest.raises(ApiError, match=r"writes labels and annotations gkm\.io/captured-"):
        api.create(GKMCACHES, cache("marked", IMAGE, NAMESPACE, **marks))
    api.create(GKMCACHES, cache(f"plain-{part}-{value}x", IMAGE, NAMESPACE))
    with pytest.raises(ApiError, match=r"writes labels and annotations gkm\.io/captured-"):
        api.merge(GKMCACHES, f"plain-{part}-{value}x", {"metadata": marks}, NAMESPACE)
