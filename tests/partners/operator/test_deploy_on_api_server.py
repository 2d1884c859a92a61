"""A real API server accepts deploy/base, and its roles and policies allow exactly what is needed."""

from functools import partial
from typing import Any

import pytest
import yaml
from gkm.kube.api import Api, ListSelector
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES, GKMCACHES, NODES, Json, Resource
from kustomizations import directories
from support.chart.deploy_files import rendered
from support.cluster.cluster import Cluster, KubectlFailed
from support.operator.deployment import ROOT, cache, node

NAMESPACE = "default"
SECRETS: Resource[Json] = Resource("v1", "Secret", "secrets", namespaced=True, type=Json)
REVIEWS: Resource[Json] = Resource(
    "authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False, type=Json
)
SYSTEM = "system:serviceaccount:gkm-system:"
_GKM = ("gkmcaches.gkm.io", "clustergkmcaches.gkm.io")
_NODES = ("gkmcachenodes.gkm.io", "clustergkmcachenodes.gkm.io")
_RUNS, _PLANS = "runs.gkm.io", "placementplans.gkm.io"

ALLOWED = {
    "gkm-agent": {
        *((verb, kind) for verb in ("list", "watch") for kind in (*_GKM, "nodes")),
        *((verb, kind) for verb in ("create", "patch", "delete") for kind in _NODES),
        *(("patch", f"{kind}/status") for kind in _NODES),
        ("list", "gkmcachenodes.gkm.io"),
        ("get", "clustergkmcachenodes.gkm.io"),
        *((verb, "nodefabrics.gkm.io") for verb in ("get", "create", "patch")),
        ("patch", "nodefabrics.gkm.io/status"),
        ("patch", "nodes"),
    },
    "gkm-controllers": {
        *((verb, kind) for verb in ("list", "watch") for kind in (*_GKM, *_NODES, _RUNS, _PLANS, "nodes", "pods")),
        *(("patch", f"{kind}/status") for kind in (*_GKM, _RUNS)),
        *((verb, kind) for verb in ("create", "delete") for kind in (*_GKM, _PLANS)),
        ("create", "events.events.k8s.io"),
        *(
            (verb, "validatingwebhookconfigurations.admissionregistration.k8s.io/gkm-caches")
            for verb in ("get", "patch")
        ),
    },
    "gkm-admission": {
        ("get", "validatingwebhookconfigurations.admissionregistration.k8s.io/gkm-caches"),
    },
    "gkm-csi": set(),
}
ALLOWED_IN_OURS = {
    "gkm-controllers": {
        *((verb, kind) for verb in ("list", "watch") for kind in ("pods", "daemonsets.apps/gkm-agent")),
        *((verb, "serviceaccounts/gkm-flavors") for verb in ("create", "patch")),
        ("get", "configmaps/gkm-admission-ca"),
    },
    "gkm-admission": {(verb, "configmaps/gkm-admission-ca") for verb in ("get", "create", "patch")},
}
"""In the namespace of GKM alone."""
REFUSED_IN_OURS = {
    *((verb, "pods") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *((verb, "daemonsets.apps") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("create", "pods/exec"),
    ("get", "pods/log"),
}
REFUSED = {
    *((verb, "secrets") for verb in ("get", "list", "watch", "create", "patch")),
    ("list", "configmaps"),
    ("list", "pods"),
    # But by the agent, which a policy holds to labels of its own Node
    # (tests/apiserver/agent/test_fabric_on_api_server.py).
    ("patch", "nodes"),
    *((verb, "nodes") for verb in ("create", "update", "delete")),
    ("patch", "nodes/status"),
    ("create", "pods"),
    ("create", "serviceaccounts/token"),
    ("patch", "validatingwebhookconfigurations.admissionregistration.k8s.io"),
    *((verb, kind) for verb in ("create", "patch", "delete") for kind in (*_GKM, _RUNS)),
    *((verb, _PLANS) for verb in ("create", "patch", "update", "delete")),
    ("get", "pods"),
}


@pytest.fixture(scope="module")
def admin(gkm_cluster: Cluster) -> Api:
    return connect(str(gkm_cluster.kubeconfig))


OVERLAYS = ("base", *(f"overlays/{each.name}" for each in directories.OVERLAYS))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_manifest_is_accepted(gkm_cluster: Cluster, overlay: str) -> None:
    # The namespace is there already; in a dry run nothing could be put into a new one.
    said = gkm_cluster.kubectl("apply", "--server-side", "--dry-run=server", "--kustomize", str(rendered() / overlay))
    built = gkm_cluster.kubectl("kustomize", str(rendered() / overlay))
    assert len(said.splitlines()) == len(list(yaml.safe_load_all(built)))
    assert all(line.endswith("serverside-applied (server dry run)") for line in said.splitlines())


@pytest.mark.usefixtures("kserve")
def test_the_samples_are_accepted(gkm_cluster: Cluster) -> None:
    samples = ROOT / "deploy" / "samples"
    documents = [document for path in samples.rglob("*.yaml") for document in yaml.safe_load_all(path.read_text())]
    for name in sorted({document["metadata"].get("namespace", "default") for document in documents} - {"default"}):
        gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    said = gkm_cluster.kubectl("apply", "--dry-run=server", "--recursive", "--filename", str(samples))
    assert len(said.splitlines()) == len(documents)


@pytest.mark.parametrize("account", sorted(ALLOWED))
def test_an_account_may_do_exactly_what_it_needs(gkm_cluster: Cluster, admin: Api, account: str) -> None:
    for verb, kind in sorted(ALLOWED[account]):
        assert _can(admin, account, verb, kind), (verb, kind)
    rules = gkm_cluster.kubectl("auth", "can-i", "--list", f"--as={SYSTEM}{account}", "--no-headers")
    ours = [line for line in rules.splitlines() if "gkm.io" in line or "events" in line or "webhook" in line]
    assert bool(ours) == bool(ALLOWED[account])


@pytest.mark.parametrize("account", sorted(ALLOWED))
def test_an_account_has_no_dangerous_rights(admin: Api, account: str) -> None:
    for verb, kind in sorted(REFUSED - ALLOWED[account]):
        assert not _can(admin, account, verb, kind), (verb, kind)


@pytest.mark.parametrize("account", sorted(ALLOWED))
def test_an_account_has_exactly_its_rights_in_our_namespace(admin: Api, account: str) -> None:
    allowed = ALLOWED_IN_OURS.get(account, set())
    for verb, kind in sorted(REFUSED_IN_OURS | allowed):
        assert _can(admin, account, verb, kind, "gkm-system") == ((verb, kind) in allowed), (verb, kind)


def test_an_agents_token_lists_no_secrets_and_does_all_that_it_needs(gkm_cluster: Cluster) -> None:
    api = _agent(gkm_cluster, "node-own")
    with pytest.raises(ApiError) as caught:
        list(api.list_pages(SECRETS))
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
    list(api.list_pages(GKMCACHES))
    list(api.list_pages(NODES, ListSelector(fields="metadata.name=node-own")))
    list(api.list_pages(GKMCACHENODES))
    _write(api, GKMCACHENODES, node("node-own", {}, NAMESPACE))
    _write(api, CLUSTERGKMCACHENODES, node("node-own", {}))
    assert api.get(CLUSTERGKMCACHENODES, "node-own").spec.node_name == "node-own"
    api.delete(GKMCACHENODES, "node-own", NAMESPACE)
    api.delete(CLUSTERGKMCACHENODES, "node-own")


@pytest.mark.parametrize("namespace", [NAMESPACE, None])
def test_an_agent_cannot_touch_the_object_of_another_node(gkm_cluster: Cluster, namespace: str | None) -> None:
    resource: Resource[Any] = GKMCACHENODES if namespace else CLUSTERGKMCACHENODES
    theirs = node("node-theirs", {}, namespace)
    admin = connect(str(gkm_cluster.kubeconfig))
    _write(admin, resource, theirs)
    api = _agent(gkm_cluster, "node-own")
    masked = node("node-mask", {}, namespace) | {"spec": {"nodeName": "node-own"}}
    for attempt in (
        lambda: api.apply(resource, _without_status(theirs), field_manager="gkm-agent"),
        lambda: api.apply(resource, theirs, field_manager="gkm-agent", subresource="status"),
        lambda: api.delete(resource, "node-theirs", namespace),
        lambda: api.create(resource, _without_status(masked)),
    ):
        with pytest.raises(ApiError) as caught:
            attempt()
        assert caught.value.status == 403, caught.value
        assert "the agent of node node-own must not write the object of node node-" in caught.value.message


def test_an_agents_token_that_is_bound_to_no_node_writes_nothing(gkm_cluster: Cluster) -> None:
    api = connect(str(gkm_cluster.kubeconfig_for(f"{SYSTEM}gkm-agent")))
    with pytest.raises(ApiError) as caught:
        api.create(GKMCACHENODES, _without_status(node("node-own", {}, NAMESPACE)))
    assert "not bound to a Node" in caught.value.message


def test_a_node_object_never_changes_its_node(gkm_cluster: Cluster) -> None:
    api = connect(str(gkm_cluster.kubeconfig))
    _write(api, GKMCACHENODES, node("node-fixed", {}, NAMESPACE))
    with pytest.raises(ApiError) as caught:
        api.merge(GKMCACHENODES, "node-fixed", {"spec": {"nodeName": "another"}}, NAMESPACE)
    assert caught.value.status == 422
    assert "spec.nodeName cannot change" in caught.value.message


def test_cluster_caches_are_for_people_with_a_role_for_the_whole_cluster(gkm_cluster: Cluster) -> None:
    gkm_cluster.apply(
        [_binding("of-namespace", "edit", NAMESPACE), _binding("reader", "view"), _binding("writer", "edit")]
    )

    def can(user: str, verb: str, kind: str) -> bool:
        # kubectl exits with 1 where the answer is no.
        where = f"--namespace={NAMESPACE}" if kind == "gkmcaches" else "--all-namespaces"
        what = ("auth", "can-i", verb, f"{kind}.gkm.io", f"--as={user}", where)
        try:
            return gkm_cluster.kubectl(*what).strip() == "yes"
        except KubectlFailed:
            return False

    # The controller-manager adds our rights to the roles of Kubernetes, to one after the other.
    for allowed in (
        ("writer", "create", "clustergkmcaches"),
        ("reader", "list", "clustergkmcaches"),
        ("reader", "get", "nodefabrics"),
        ("of-namespace", "create", "gkmcaches"),
    ):
        gkm_cluster.until(partial(can, *allowed), f"{allowed}")
    assert not can("reader", "create", "clustergkmcaches")
    assert not can("writer", "create", "clustergkmcachenodes")
    assert not can("of-namespace", "list", "clustergkmcaches")
    assert not can("of-namespace", "create", "clustergkmcaches")


def test_editors_write_caches_but_never_their_status(gkm_cluster: Cluster) -> None:
    gkm_cluster.apply(_binding("editor", "edit", NAMESPACE))
    kubeconfig = gkm_cluster.kubeconfig_for("editor")
    api = connect(str(kubeconfig))
    gkm_cluster.until(lambda: _creates(api), "roles are aggregated")
    forged = cache("edited", "registry.test/team/cache:1", NAMESPACE) | {"status": {"readyNodes": 1}}
    with pytest.raises(ApiError) as caught:
        api.apply(GKMCACHES, forged, field_manager="editor", subresource="status")
    assert caught.value.status == 403
    api.delete(GKMCACHES, "edited", NAMESPACE)


def _binding(user: str, role: str, namespace: str = "") -> Json:
    """Give a user a role of Kubernetes, in a namespace or everywhere."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": user} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user}],
    }


def _creates(api: Api) -> bool:
    try:
        api.create(GKMCACHES, cache("edited", "registry.test/team/cache:1", NAMESPACE))
    except ApiError as error:
        if error.status == 403:
            return False
        raise
    return True


def _can(api: Api, account: str, verb: str, kind: str, namespace: str = "") -> bool:
    """Return what `kubectl auth can-i --as` asks the API server; without a namespace, in all of them."""
    kind, _, rest = kind.partition("/")
    resource, _, group = kind.partition(".")
    what = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    what |= {"subresource" if rest in {"status", "token", "exec", "log"} else "name": rest}
    groups = ["system:serviceaccounts", "system:serviceaccounts:gkm-system", "system:authenticated"]
    spec = {"user": f"{SYSTEM}{account}", "groups": groups, "resourceAttributes": what}
    review = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "metadata": {}, "spec": spec}
    return bool(api.create(REVIEWS, review)["status"]["allowed"])


def _agent(cluster: Cluster, name: str) -> Api:
    if not cluster.exists("node", name):
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    return connect(str(cluster.kubeconfig_for(f"{SYSTEM}gkm-agent", node=name)))


def _write(api: Api, resource: Resource[Any], whole: Json) -> None:
    api.apply(resource, _without_status(whole), field_manager="gkm-agent")
    api.apply(resource, whole, field_manager="gkm-agent", subresource="status")


def _without_status(whole: Json) -> Json:
    return {part: value for part, value in whole.items() if part != "status"}
