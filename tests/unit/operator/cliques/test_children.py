"""The objects that the built-in controllers make are those of Grove, as its player in tests makes them."""

from typing import Any

import pytest
from gkm.api.network_settings import Grove
from gkm_operator.cliques import desired as module
from gkm_operator.cliques.children import of_set
from gkm_operator.cliques.kinds import PodCliqueSet
from msgspec import convert
from support.grove.driver import CLIQUES, GROUPS, PODS, SERVICES, SETS, GroveDriver
from support.grove.objects import NAMESPACE, clique, container, pod_clique_set, scaling_group
from support.kube.fake_api import FakeApi
from support.operator.cliques import InjectingApi, Stepper, a_set, observed

Json = dict[str, Any]


def made(pcs: Json) -> FakeApi:
    """An API in which the built-in controllers are done with a set."""
    api = FakeApi()
    api.create(SETS, pcs)
    Stepper(api).settle()
    return api


def played(pcs: Json) -> FakeApi:
    """An API in which the player of Grove is done with a set."""
    api = FakeApi()
    api.create(SETS, pcs)
    GroveDriver(api, pods=True).settle()
    return api


def comparable(value: Json, *without: str) -> Json:
    """Return what both make alike: labels without gangs and hashes, owners by name."""
    metadata = value["metadata"]
    left_out = ("grove.io/podgang", "grove.io/base-podgang", "grove.io/pod-template-hash")
    labels = {key: one for key, one in metadata["labels"].items() if key not in left_out}
    owners = [{key: one for key, one in owner.items() if key != "uid"} for owner in metadata["ownerReferences"]]
    spec = {key: one for key, one in value["spec"].items() if key not in without}
    return {"labels": labels, "owners": owners, "annotations": metadata.get("annotations") or {}, "spec": spec}


@pytest.mark.parametrize("kind", [SERVICES, CLIQUES, GROUPS], ids=lambda kind: kind.plural)
def test_names_labels_owners_and_specs_are_those_of_grove(kind: Any) -> None:  # noqa: ANN401 -- a Resource
    pcs = a_set(2)
    pcs["metadata"]["annotations"] = {"grove.io/mnnvl-group": "all", "team": "a"}
    pcs["spec"]["template"]["cliques"][0] |= {"labels": {"app": "x"}, "annotations": {"note": "y"}}
    ours, theirs = observed(made(pcs), kind), observed(played(pcs), kind)
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        assert comparable(one, "podSpec") == comparable(theirs[name], "podSpec")
        assert isinstance(one["metadata"]["ownerReferences"][0]["uid"], str)


def test_pods_have_the_names_of_their_hosts_and_the_labels_of_grove() -> None:
    ours = {one["spec"]["hostname"]: one for one in observed(made(a_set()), PODS).values()}
    theirs = {one["spec"]["hostname"]: one for one in observed(played(a_set()), PODS).values()}
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        assert one["metadata"]["name"] == name
        assert comparable(one, "containers")["labels"] == comparable(theirs[name], "containers")["labels"]
        assert one["spec"]["subdomain"] == theirs[name]["spec"]["subdomain"]


def test_pods_have_the_variables_of_grove_and_keep_their_own() -> None:
    pcs = a_set()
    own = [{"name": "GROVE_PCS_NAME", "value": "mine"}, {"name": "OWN", "value": "1"}]
    pcs["spec"]["template"]["cliques"][2]["spec"]["podSpec"]["containers"][0]["env"] = own
    pcs["spec"]["template"]["cliques"][2]["spec"]["podSpec"]["initContainers"] = [container("init")]
    spec = observed(made(pcs), PODS)["set-0-decode-1-worker-1"]["spec"]
    variables = {
        "GROVE_PCS_INDEX": "0",
        "GROVE_PCLQ_NAME": "set-0-decode-1-worker",
        "GROVE_HEADLESS_SERVICE": f"set-0.{NAMESPACE}.svc.cluster.local",
        "GROVE_PCLQ_POD_INDEX": "1",
        "GROVE_PCSG_NAME": "set-0-decode",
        "GROVE_PCSG_INDEX": "1",
        "GROVE_PCSG_TEMPLATE_NUM_PODS": "3",
    }
    found = [
        {one["name"]: one["value"] for one in part["env"]} for part in (*spec["containers"], *spec["initContainers"])
    ]
    assert found == [variables | {"GROVE_PCS_NAME": "mine", "OWN": "1"}, variables | {"GROVE_PCS_NAME": "set"}]


def test_what_the_manifest_leaves_out_has_a_default() -> None:
    pcs = pod_clique_set("set", clique("a"), clique("b", replicas=3), scaling_groups=[scaling_group("g", "b")])
    pcs["spec"]["template"]["cliques"][0]["spec"] = {"podSpec": {"containers": [container("main")]}}
    pcs["spec"]["template"]["cliques"][1]["spec"].pop("minAvailable")
    for field in ("replicas", "minAvailable"):
        pcs["spec"]["template"]["podCliqueScalingGroups"][0].pop(field)
    api = made(pcs)
    a, b = (observed(api, CLIQUES)[name]["spec"] for name in ("set-0-a", "set-0-g-0-b"))
    group = observed(api, GROUPS)["set-0-g"]["spec"]
    assert (a["roleName"], a["replicas"], a["minAvailable"]) == ("a", 1, 1)
    assert (b["roleName"], b["replicas"], b["minAvailable"]) == ("b", 3, 3)
    assert (group["replicas"], group["minAvailable"]) == (1, 1)


def test_a_set_without_replicas_has_no_children() -> None:
    pcs = a_set()
    del pcs["spec"]["replicas"]
    api = made(pcs)
    assert [observed(api, kind) for kind in (SERVICES, CLIQUES, GROUPS, PODS)] == [{}, {}, {}, {}]


def test_no_parent_has_more_children_than_the_limit() -> None:
    pcs = convert(a_set(2**31 - 1) | {"metadata": {"name": "set"}}, PodCliqueSet)
    assert len(of_set(pcs)) == module.MAX_CHILDREN


def test_the_switch_is_off_by_default() -> None:
    assert not Grove().built_in_controllers


def test_a_claim_that_admission_adds_is_passed_to_pods_and_causes_no_write() -> None:
    api = InjectingApi()
    api.create(SETS, a_set())
    Stepper(api).settle()
    api.calls.clear()
    Stepper(api).settle()
    assert {verb for verb, _, _ in api.calls} == {"list"}
    pods = observed(api, PODS).values()
    assert [one["spec"]["resourceClaims"][0]["name"] for one in pods] == ["some-claim"] * 8
