"""What keeps a Run or a plan out that makes no sense, on a real API server: the kinds' own rules, and two policies."""

import json
from collections.abc import Iterator

import pytest
from gkm.kube.client import connect
from gkm.kube.resources import PLACEMENTPLANS, Json
from support.cluster.cluster import Cluster
from support.cluster.objects import RequestFailed, refusal
from support.cluster.rights import until_rights_hold
from support.cluster.warnings import warned
from support.kube.our_kinds import CONTROLLERS
from support.operator.deployment import manifests

NAMESPACE = "runs-policy"
NO_H20 = "no node has the flavor h20"
HASH = "0" * 64


@pytest.fixture(scope="module")
def place(gkm_cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, which has the policies, and two flavors."""
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    flavors(gkm_cluster, "gb200,h100")
    try:
        # An API server takes a moment to see the parameters of a policy.
        gkm_cluster.until(lambda: NO_H20 in refused(gkm_cluster, run(flavor="h20")), "the flavors to be known")
        yield gkm_cluster
    finally:
        gkm_cluster.objects.delete_named("serviceaccount", "gkm-flavors", "gkm-system")
        gkm_cluster.objects.ask_to_delete("namespace", NAMESPACE)


def flavors(cluster: Cluster, text: str) -> None:
    meta = {"name": "gkm-flavors", "namespace": "gkm-system", "annotations": {"gkm.io/flavors": text}}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})


def run(name: str = "llama", **spec: object) -> Json:
    meta = {"name": name, "namespace": NAMESPACE}
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "Run",
        "metadata": meta,
        "spec": {"flavor": "h100", "gpus": 16} | spec,
    }


def plan(**spec: object) -> Json:
    sizes = {"gpus": 8, "gpusPerPod": 8, "groupGPUs": 8}
    counted = ("domains", "lowerBound", "gap", "strandedGPUs", "blocks", "pristineDomains", "sparesElsewhere")
    full: dict[str, object] = {"hash": HASH, "inventoryVersion": HASH, "policy": "fewest-domains", "flavor": "h100"}
    full |= {"gpus": 8, "request": sizes, "groups": [], "metrics": dict.fromkeys(counted, 0)}
    meta = {"name": "llama-1", "namespace": NAMESPACE}
    return {"apiVersion": "gkm.io/v1alpha1", "kind": "PlacementPlan", "metadata": meta, "spec": full | spec}


def refused(cluster: Cluster, value: Json) -> str:
    """Why the API server does not take an object; empty where it would."""
    return refusal(lambda: cluster.objects.create(value, dry_run=True))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"gpus": 12}, "gpus do not divide into pods of gpusPerPod"),
        ({"gpus": 0}, "spec.gpus"),
        ({"groupGPUs": 12}, "groupGPUs do not divide"),
        ({"gpusPerPod": 4, "gpus": 6}, "gpus do not divide"),
        ({"spares": -1}, "spec.spares"),
        ({"policy": "best"}, "spec.policy"),
        ({"malleability": {"stepGPUs": 8, "minGPUs": 64}}, "minGPUs is more than gpus"),
        ({"selector": {"labels": {"no label": "x"}}}, "these are no labels"),
        ({"selector": {"labels": {"zone": "-x"}}}, "these are no labels"),
        ({"labels": {"a/b/c": "x"}}, "these are no labels"),
        ({"apart": "cluster"}, "spec.apart"),
        ({"perArea": [{"level": "room", "maxNodes": 1}]}, "spec.perArea[0].level"),
        ({"perArea": [{"level": "rack"}]}, "has none of maxGroups, maxNodes and groupsTogether"),
        ({"perArea": [{"level": "rack", "maxNodes": 0}]}, "spec.perArea[0].maxNodes"),
        ({"perArea": [{"level": "rack", "maxNodes": 1}, {"level": "rack", "maxGroups": 1}]}, "Duplicate value"),
        ({"perArea": [{"level": "rack", "groupsTogether": 2}], "gpus": 32}, "is for a block, a cluster or a region"),
        ({"perArea": [{"level": "block", "groupsTogether": 3}], "gpus": 64}, "gpus divide into so many groups"),
        (
            {
                "perArea": [{"level": "cluster", "groupsTogether": 3}, {"level": "block", "groupsTogether": 2}],
                "gpus": 96,
            },
            "do not divide into groupsTogether of a smaller level",
        ),
        ({"scopes": [{"name": "Team", "maxGPUs": 8}]}, "spec.scopes[0].name"),
        ({"scopes": [{"name": "team", "maxGPUs": 8}, {"name": "team", "maxGPUs": 9}]}, "Duplicate value"),
        ({"flavor": "no flavor"}, "spec.flavor"),
        ({"flavor": "h20"}, f"{NO_H20}; there are: gb200,h100"),
        ({"requests": {"cpu": "many"}}, "spec.requests.cpu"),
        ({"requests": {"cpu": -1}}, "spec.requests.cpu"),
        ({"requests": {"memory": "1 Gi"}}, "spec.requests.memory"),
        ({"requests": {"disk": "1Gi"}}, 'unknown field "spec.requests.disk"'),
        ({"gpuz": 8}, 'unknown field "spec.gpuz"'),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else "",
)
def test_a_run_that_makes_no_sense_is_refused_with_the_reason(place: Cluster, spec: Json, said: str) -> None:
    assert said in refused(place, run(**spec))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"flavor": "H100"},
        {"gpus": 12, "gpusPerPod": 4, "groupGPUs": 8},
        {"apart": "rack", "perArea": [{"level": "domain", "maxNodes": 16}]},
        {
            "gpus": 1536,
            "groupGPUs": 64,
            "perArea": [{"level": "block", "groupsTogether": 3}, {"level": "cluster", "groupsTogether": 6}],
        },
        {"selector": {"region": "r", "labels": {"example.com/zone": "", "rack": "r-1"}}, "labels": {"team": "ml"}},
        {"requests": {"cpu": 64, "memory": "512Gi"}},
        {"requests": {"cpu": "500m"}},
        {"malleability": {"stepGPUs": 8, "minGPUs": 8}, "spares": 2, "priority": -5},
    ],
    ids=json.dumps,
)
def test_one_that_does_is_not(place: Cluster, spec: Json) -> None:
    assert refused(place, run(**spec)) == ""


@pytest.mark.parametrize("requests", [None, {}, {"cpu": 64}, {"memory": "512Gi"}], ids=json.dumps)
def test_a_run_that_does_not_say_what_its_pods_request_causes_a_warning(place: Cluster, requests: Json | None) -> None:
    spec: dict[str, object] = {} if requests is None else {"requests": requests}
    said = warned(place, run("llama", **spec))
    missing = [f"spec.requests.{name}" for name in ("cpu", "memory") if name not in (requests or {})]
    assert f"this Run does not name {' and '.join(missing)}" in said
    assert "a pod that requests more waits on a planned node" in said


def test_a_run_that_says_it_causes_none(place: Cluster) -> None:
    assert warned(place, run(requests={"cpu": 64, "memory": "512Gi"})) == ""


def test_a_name_that_is_no_value_of_a_label_is_refused(place: Cluster) -> None:
    assert refused(place, run("x" * 63)) == ""
    assert "the name is longer than 63 characters" in refused(place, run("x" * 64))


def test_a_run_keeps_a_flavor_that_has_gone(place: Cluster) -> None:
    place.apply(run("keeps"))
    flavors(place, "gb200")
    try:
        place.until(lambda: "no node has the flavor h100" in refused(place, run("other")), "the flavor to be gone")
        place.objects.merge("run", "keeps", {"spec": {"gpus": 32}}, NAMESPACE)
    finally:
        flavors(place, "gb200,h100")
        place.objects.delete_named("run", "keeps", NAMESPACE)
        place.until(lambda: not refused(place, run("other")), "the flavor to be back")


def test_while_no_flavor_is_known_none_is_refused(place: Cluster) -> None:
    flavors(place, "")
    try:
        place.until(lambda: not refused(place, run(flavor="h20")), "no flavor to be known")
    finally:
        flavors(place, "gb200,h100")
        place.until(lambda: NO_H20 in refused(place, run(flavor="h20")), "flavors to be known again")


@pytest.mark.parametrize("left", [True, False], ids=["with what was there", "anew"])
def test_after_a_new_installation_the_flavors_of_now_count(place: Cluster, left: bool) -> None:  # noqa: FBT001 -- a case
    """Helm leaves the ServiceAccount, which the controllers made; who removes the namespace removes it too."""
    policies = [each for each in manifests() if each["metadata"]["name"] == "gkm-runs-flavor"]
    assert len(policies) == len({each["kind"] for each in policies}) == 2
    for each in policies:
        place.objects.delete(each)
    if not left:
        place.objects.delete_named("serviceaccount", "gkm-flavors", "gkm-system")
    place.until(lambda: not refused(place, run(flavor="h20")), "the policy to be gone")
    place.apply(policies)
    flavors(place, "b200,h20")
    try:
        place.until(lambda: "there are: b200,h20" in refused(place, run()), "the new flavors to count")
        assert refused(place, run(flavor="h20")) == ""
        flavors(place, "b200")
        place.until(lambda: NO_H20 in refused(place, run(flavor="h20")), "a change to count")
    finally:
        flavors(place, "gb200,h100")
        place.until(lambda: not refused(place, run()), "the flavors of other tests to be back")


def test_only_the_controllers_write_a_plan(place: Cluster) -> None:
    assert f"only {CONTROLLERS} writes plans and the status of runs, and this is admin" in refused(place, plan())


def test_only_the_controllers_set_a_run_to_planned(place: Cluster) -> None:
    place.apply(run("claimed"))
    try:
        claim = {"status": {"planRef": {"name": "mine"}}}
        with pytest.raises(RequestFailed, match="writes plans and the status of runs"):
            place.objects.merge("run", "claimed", claim, NAMESPACE, subresource="status")
    finally:
        place.objects.delete_named("run", "claimed", NAMESPACE)


def test_a_plan_of_theirs_is_never_edited_not_even_by_them(place: Cluster) -> None:
    theirs = connect(str(place.kubeconfig_for(CONTROLLERS)))
    admin = connect(str(place.kubeconfig))
    group = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": CONTROLLERS}]
    name = {"name": "runs-policy-controllers"}
    place.apply(group | {"kind": "ClusterRoleBinding", "metadata": name, "roleRef": role, "subjects": subjects})
    try:
        until_rights_hold(place)
        theirs.create(PLACEMENTPLANS, plan())
        with pytest.raises(RequestFailed, match="a plan is written once: it is superseded, not edited"):
            place.objects.as_user(CONTROLLERS).replace(plan(gpus=16))
        assert admin.get(PLACEMENTPLANS, "llama-1", NAMESPACE).spec.gpus == 8
    finally:
        admin.delete(PLACEMENTPLANS, "llama-1", NAMESPACE)
        place.objects.delete_named("clusterrolebinding", name["name"])
