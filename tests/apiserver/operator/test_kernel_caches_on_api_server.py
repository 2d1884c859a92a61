"""KernelCaches become GKMCaches on a real API server, by the account, the rights and the policy that ship.

The kinds of KServe are definitions of ours (support.operator.kernel_caches).
"""

from collections.abc import Iterator
from typing import Any

import pytest
from gkm.api.kernel_caches import KServe
from gkm.kube.client import connect
from gkm.kube.informers import Informers
from gkm.kube.resources import Json
from gkm_operator.kserve.controller import KServeController
from support.cluster.cluster import Cluster
from support.cluster.objects import Objects, refusal
from support.cluster.policies import until_policies_hold
from support.cluster.rights import until_rights_hold
from support.operator.deployment import component
from support.operator.kernel_caches import DEFINITIONS, DIGEST, IMAGE, SELECTOR, kernel_cache, node_group

SPACE = "kernel-caches"
CONTROLLERS = "system:serviceaccount:gkm-system:gkm-controllers"
NOW = "2026-11-29T10:00:00Z"


@pytest.fixture(scope="module")
def place(gkm_cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster with KServe's kinds, the component and the controller, for the tests of this file only."""
    shipped = component("kserve")
    gkm_cluster.apply([*DEFINITIONS, *shipped, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}])
    gkm_cluster.until_kinds_established()
    gkm_cluster.forget_kinds()
    until_rights_hold(gkm_cluster)
    until_policies_hold(gkm_cluster)
    gkm_cluster.apply(node_group())
    api = connect(str(gkm_cluster.kubeconfig_for(CONTROLLERS)))
    controller = KServeController(api, KServe(enabled=True), informers=Informers(api), calm=0.05)
    controller.work()
    try:
        yield gkm_cluster
    finally:
        controller.stop()
        controller.join(5.0)
        controller.close_watches(5.0)
        for kind in ("kernelcache", "gkmcache"):
            gkm_cluster.objects.delete_every(f"{kind}s", SPACE)
        for each in [node_group(), *shipped, *DEFINITIONS]:
            gkm_cluster.objects.delete(each)
        gkm_cluster.forget_kinds()
        until_policies_hold(gkm_cluster)  # the deleted one would refuse writes of the next module's tests


def condition(found: Json, kind: str) -> tuple[str, str, str]:
    told = {each["type"]: each for each in found.get("status", {}).get("conditions", [])}
    return tuple(told.get(kind, {}).get(part, "") for part in ("status", "reason", "message"))


def until_ready_is(place: Cluster, name: str, reason: str) -> Json:
    def so() -> Json | None:
        found = place.get("kernelcache", name, SPACE)
        return found if condition(found, "Ready")[1] == reason else None

    return place.until(so, f"{name} to be {reason}")


def report(place: Cluster, name: str, **status: Any) -> None:  # noqa: ANN401 -- JSON
    """Write what the controller of caches would write of a GKMCache."""
    conditions = [
        {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": NOW}
        for kind, value, reason, message in (
            ("Verified", "True", "CosignSuccess", "signed by key abc"),
            ("Ready", "True", "AllNodesReady", "2 of 2 nodes are ready"),
        )
    ]
    status |= {"image": IMAGE, "resolvedDigest": DIGEST, "conditions": conditions}
    head = {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache", "metadata": {"name": name, "namespace": SPACE}}
    as_controllers(place).apply(head | {"status": status}, "status")


def as_controllers(place: Cluster) -> Objects:
    return place.objects.as_user(CONTROLLERS)


def test_a_kernel_cache_goes_there_and_back(place: Cluster) -> None:
    place.apply(kernel_cache("qwen", SPACE))
    written = place.get("kernelcache", "qwen", SPACE)
    until_ready_is(place, "qwen", "NotVerified")
    made = place.get("gkmcache", "qwen", SPACE)
    assert (made["spec"]["image"], made["spec"]["nodeSelector"]) == (IMAGE, SELECTOR)
    report(
        place,
        "qwen",
        totalNodes=3,
        readyNodes=2,
        incompatibleNodes=1,
        podsUsing=4,
        incompatibleNodeConditions={"ArchitectureMismatch": ["n3"]},
    )
    found = until_ready_is(place, "qwen", "AllNodesReady")
    status = found["status"]
    assert found["spec"] == written["spec"]
    assert (status["state"], status["usage"]) == ("Ready", {"totalPodsUsing": 4})
    assert status["counts"] == {"nodeCount": 2, "nodesReady": 2, "nodesPreparing": 0, "nodesError": 0}
    assert status["verification"]["message"] == "signed by key abc"
    assert condition(found, "GPUCompatible")[2].endswith("1 of 3 nodes: ArchitectureMismatch: n3")
    assert condition(found, "Translated")[0] == "True"


def test_the_nodes_of_a_group_are_followed_and_a_deleted_kernel_cache_takes_its_gkm_cache_along(place: Cluster) -> None:
    place.apply(node_group("moving"))
    place.apply(kernel_cache("follower", SPACE, group="moving"))
    until_ready_is(place, "follower", "NotVerified")
    place.objects.merge(
        "kernelcachenodegroup", "moving", {"spec": {"nodeSelector": {"pool": "b", "accelerator": None}}}
    )

    def selector() -> Json:
        found: Json = place.get("gkmcache", "follower", SPACE)["spec"]["nodeSelector"]
        return found

    place.until(lambda: selector() == {"pool": "b"}, "the nodes of the group")
    place.objects.delete_named("kernelcache", "follower", SPACE)
    place.until(lambda: not place.exists("gkmcache", "follower", SPACE), "the garbage collector")
    place.objects.delete(node_group("moving"))


def test_a_gkm_cache_of_a_user_stays_and_is_told(place: Cluster) -> None:
    metadata = {"name": "taken", "namespace": SPACE}
    spec = {"image": "registry.test/other:1"}
    place.apply({"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache", "metadata": metadata, "spec": spec})
    place.apply(kernel_cache("taken", SPACE))
    found = until_ready_is(place, "taken", "NameTaken")
    assert found["status"]["state"] == "Error"
    assert place.get("gkmcache", "taken", SPACE)["spec"]["image"] == spec["image"]


def test_a_group_with_too_many_labels_is_told_in_the_words_of_the_api_server(place: Cluster) -> None:
    labels = {f"label-{number}": "x" for number in range(17)}
    place.apply(node_group("many", nodeSelector=labels))
    place.apply(kernel_cache("many", SPACE, group="many"))
    found = until_ready_is(place, "many", "CacheRefused")
    assert "spec.nodeSelector" in condition(found, "Ready")[2]
    place.objects.delete(node_group("many"))


def test_the_account_changes_no_image_and_no_cache_of_a_user(place: Cluster) -> None:
    place.apply(kernel_cache("held", SPACE))
    until_ready_is(place, "held", "NotVerified")
    metadata = {"name": "users", "namespace": SPACE}
    spec = {"image": "registry.test/other:1"}
    place.apply({"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache", "metadata": metadata, "spec": spec})

    def refused(name: str, patch: Json) -> str:
        return refusal(lambda: as_controllers(place).merge("gkmcache", name, patch, SPACE))

    selector = {"spec": {"nodeSelector": {"pool": "z"}}}
    assert "but those of KernelCaches" in refused("users", selector)
    assert "nothing of the GKMCache of a KernelCache but its" in refused("held", {"spec": {"image": "r.test/evil:1"}})
    assert "nothing of the GKMCache of a KernelCache but its" in refused("held", {"metadata": {"labels": {"a": "b"}}})
    assert refused("held", selector) == ""
