"""The Grove operator that tests play: what of the real one's behaviour GKM depends on."""

from typing import Any

import pytest
from gkm.kube.errors import ApiError
from support.grove.desired import CLIQUE_FINALIZER, GROUP_FINALIZER, SET_FINALIZER
from support.grove.driver import CLIQUES, GROUPS, PODS, SERVICES, SETS, GroveDriver
from support.grove.objects import NAMESPACE, clique, pod_clique_set, scaling_group
from support.kube.fake_api import FakeApi
from support.kube.garbage import collect_garbage

Json = dict[str, Any]
CLAIM = [{"name": "mnnvl-claim", "resourceClaimTemplateName": "set-0"}]


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def played(api: FakeApi, *, replicas: int = 1, annotations: dict[str, str] | None = None) -> GroveDriver:
    """A driver that is done with a set of two cliques, one of them in a scaling group of two."""
    template = pod_clique_set(
        "set",
        clique("router", gpus=0),
        clique("worker", replicas=2),
        replicas=replicas,
        annotations=annotations,
        scaling_groups=[scaling_group("decode", "worker", replicas=2)],
    )
    api.create(SETS, template)
    driver = GroveDriver(api, pods=True)
    driver.settle()
    return driver


def names(driver: GroveDriver, kind: Any) -> list[str]:  # noqa: ANN401 -- a Resource
    return sorted(one["metadata"]["name"] for one in driver.every(kind))


def test_a_set_becomes_objects_in_the_order_of_grove(api: FakeApi) -> None:
    driver = played(api)
    assert names(driver, CLIQUES) == ["set-0-decode-0-worker", "set-0-decode-1-worker", "set-0-router"]
    assert names(driver, GROUPS) == ["set-0-decode"]
    assert [name for verb, _, name in api.calls if verb == "create"][1:6] == [
        "set-0",
        "set-0-router",
        "set-0-decode",
        "set-0-decode-0-worker",
        "set-0-decode-1-worker",
    ]
    assert len(driver.every(PODS)) == 5


def test_a_pod_clique_has_the_labels_and_the_owner_of_its_place(api: FakeApi) -> None:
    driver = played(api)
    group = api.get(GROUPS, "set-0-decode", NAMESPACE)
    metadata = api.get(CLIQUES, "set-0-decode-1-worker", NAMESPACE)["metadata"]
    labels = {name: value for name, value in metadata["labels"].items() if not name.endswith("-hash")}
    assert labels == {
        "app.kubernetes.io/managed-by": "grove-operator",
        "app.kubernetes.io/part-of": "set",
        "app.kubernetes.io/name": "set-0-decode-1-worker",
        "app.kubernetes.io/component": "pcsg-podclique",
        "grove.io/podcliqueset-replica-index": "0",
        "grove.io/podcliquescalinggroup": "set-0-decode",
        "grove.io/podcliquescalinggroup-replica-index": "1",
        "grove.io/podgang": "set-0-decode-0",
        "grove.io/base-podgang": "set-0",
    }
    assert metadata["finalizers"] == [CLIQUE_FINALIZER]
    assert [owner["uid"] for owner in metadata["ownerReferences"]] == [group["metadata"]["uid"]]
    assert api.get(GROUPS, "set-0-decode", NAMESPACE)["metadata"]["finalizers"] == [GROUP_FINALIZER]
    assert driver.every(SETS)[0]["metadata"]["finalizers"] == [SET_FINALIZER]


def test_a_settled_driver_writes_nothing(api: FakeApi) -> None:
    driver = played(api)
    before = driver.writes.total()
    assert driver.sync()
    assert driver.writes.total() == before


def test_what_is_injected_into_a_standalone_clique_is_lost_and_in_a_scaling_group_it_stays(api: FakeApi) -> None:
    driver = played(api)
    for name in ("set-0-router", "set-0-decode-0-worker"):
        injected = {"metadata": {"labels": {"our": "label"}}, "spec": {"podSpec": {"resourceClaims": CLAIM}}}
        api.merge(CLIQUES, name, injected, NAMESPACE)
    driver.settle()
    standalone = api.get(CLIQUES, "set-0-router", NAMESPACE)
    grouped = api.get(CLIQUES, "set-0-decode-0-worker", NAMESPACE)
    assert ("resourceClaims" in standalone["spec"]["podSpec"], "our" in standalone["metadata"]["labels"]) == (
        False,
        False,
    )
    assert (grouped["spec"]["podSpec"]["resourceClaims"], grouped["metadata"]["labels"]["our"]) == (CLAIM, "label")


def test_a_changed_template_makes_the_cliques_of_its_scaling_group_anew(api: FakeApi) -> None:
    driver = played(api)
    before = {one["metadata"]["name"]: one["metadata"]["uid"] for one in driver.every(CLIQUES)}
    pcs = driver.every(SETS)[0]
    pcs["spec"]["template"]["cliques"][1]["spec"]["podSpec"]["containers"][0]["image"] = "registry.test/app:2"
    api.merge(SETS, "set", {"spec": {"template": {"cliques": pcs["spec"]["template"]["cliques"]}}}, NAMESPACE)
    driver.settle()
    collect_garbage(api)
    driver.settle()
    after = {one["metadata"]["name"]: one["metadata"]["uid"] for one in driver.every(CLIQUES)}
    assert {name for name, uid in before.items() if after[name] != uid} == {
        "set-0-decode-0-worker",
        "set-0-decode-1-worker",
    }
    assert len(driver.every(PODS)) == 5


def test_replicas_go_out_in_to_zero_and_back(api: FakeApi) -> None:
    driver = played(api)
    for replicas in (3, 1, 0, 2):
        api.merge(SETS, "set", {"spec": {"replicas": replicas}}, NAMESPACE)
        driver.settle()
        collect_garbage(api)
        driver.settle()
        collect_garbage(api)
        assert names(driver, GROUPS) == [f"set-{replica}-decode" for replica in range(replicas)]
        assert len(driver.every(CLIQUES)) == 3 * replicas
        assert len(driver.every(PODS)) == 5 * replicas


def test_replicas_of_a_scaling_group_and_of_a_clique_are_theirs(api: FakeApi) -> None:
    driver = played(api)
    api.merge(GROUPS, "set-0-decode", {"spec": {"replicas": 3}}, NAMESPACE)
    api.merge(CLIQUES, "set-0-router", {"spec": {"replicas": 2}}, NAMESPACE)
    driver.settle()
    assert len(driver.every(CLIQUES)) == 4
    assert len(driver.every(PODS)) == 8


def test_scaling_groups_inherit_annotations_and_cliques_do_not(api: FakeApi) -> None:
    driver = played(api, annotations={"grove.io/auto-mnnvl": "enabled", "grove.io/mnnvl-group": "all", "other": "1"})
    assert driver.every(GROUPS)[0]["metadata"]["annotations"] == {
        "grove.io/auto-mnnvl": "enabled",
        "grove.io/mnnvl-group": "all",
    }
    assert all("annotations" not in one["metadata"] for one in driver.every(CLIQUES))


def test_a_refused_step_stops_the_later_ones_and_is_tried_again(api: FakeApi) -> None:
    api.fault = lambda verb, plural: (
        ApiError(403, "Forbidden", "no domain yet") if (verb, plural) == ("create", "podcliques") else None
    )
    api.create(SETS, pod_clique_set("set", clique("a"), clique("b"), scaling_groups=[scaling_group("g", "b")]))
    driver = GroveDriver(api)
    assert not driver.sync()
    assert [error.message for error in driver.refusals] == ["no domain yet"]
    assert (names(driver, SERVICES), names(driver, GROUPS)) == (["set-0"], [])
    api.fault = lambda _verb, _plural: None
    driver.settle()
    assert names(driver, CLIQUES) == ["set-0-a", "set-0-g-0-b"]


def test_a_deleted_set_leaves_nothing(api: FakeApi) -> None:
    driver = played(api, replicas=2)
    api.delete(SETS, "set", NAMESPACE)
    assert driver.every(SETS)
    for _ in range(3):
        driver.settle()
        collect_garbage(api)
    assert [one for kind in (SETS, GROUPS, CLIQUES, PODS, SERVICES) for one in driver.every(kind)] == []


def test_a_clique_whose_name_ends_anothers_is_built_from_the_wrong_template(api: FakeApi) -> None:
    api.create(SETS, pod_clique_set("set", clique("worker", gpus=1), clique("gpu-worker", gpus=8)))
    driver = GroveDriver(api)
    driver.settle()
    wrong = api.get(CLIQUES, "set-0-gpu-worker", NAMESPACE)["spec"]["podSpec"]
    assert wrong["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
