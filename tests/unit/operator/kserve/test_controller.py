"""KernelCaches become GKMCaches: by whom, when, and what is never written."""

from collections.abc import Iterator
from typing import Any

import pytest
from gkm.api.kernel_caches import KServe
from gkm.kube.errors import ApiError
from gkm.kube.informers import Informers
from gkm.kube.resources import GKMCACHES, KERNEL_CACHE_NODE_GROUPS, KERNEL_CACHES, Json
from gkm.kube.workqueue import Retry
from gkm_operator.kserve.controller import KServeController
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.operator.kernel_caches import IMAGE, SELECTOR, WORKLOAD, kernel_cache, node_group

KEY = ("ml", "qwen")
OTHER_IMAGE = "registry.test/other:1"


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.put(KERNEL_CACHE_NODE_GROUPS, node_group())
    made.put(KERNEL_CACHES, kernel_cache("qwen", "ml"))
    return made


@pytest.fixture
def running(api: FakeApi) -> Iterator[KServeController]:
    made = KServeController(api, KServe(enabled=True), informers=Informers(api), calm=0.0)
    made.work()
    yield made
    made.stop()
    made.join(5.0)
    made.close_watches(5.0)


@pytest.fixture
def idle(api: FakeApi) -> Iterator[KServeController]:
    """One whose queue does not run: a test makes its passes."""
    made = KServeController(api, KServe(enabled=True), informers=Informers(api))
    made.watches.start(*made.reflectors())
    until(lambda: made.watches.synced, "the watches to list")
    yield made
    made.close_watches(5.0)


def caches(api: FakeApi) -> list[Json]:
    return api.stored("gkmcaches")


def ready(api: FakeApi) -> tuple[str, str]:
    (found,) = api.stored("kernelcaches")
    conditions = found.get("status", {}).get("conditions", [])
    reasons = [each["reason"] for each in conditions if each["type"] == "Ready"]
    return found.get("status", {}).get("state", ""), (reasons or [""])[0]


def put_cache(api: FakeApi, image: str = IMAGE, owners: tuple[Json, ...] = ()) -> None:
    metadata = {"name": "qwen", "namespace": "ml", "ownerReferences": list(owners)}
    api.put(
        GKMCACHES, {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache", "metadata": metadata, "spec": {"image": image}}
    )


def owner(uid: str) -> Json:
    return {"apiVersion": "serving.kserve.io/v1alpha1", "kind": "KernelCache", "name": "qwen", "uid": uid}


def uid_of(api: FakeApi) -> str:
    return str(api.stored("kernelcaches")[0]["metadata"]["uid"])


def test_a_kernel_cache_becomes_a_gkm_cache_that_it_owns(api: FakeApi, running: KServeController) -> None:
    until(lambda: ready(api) == ("Pending", "NotVerified"), "the status")
    assert running.is_quiet
    (made,) = caches(api)
    assert made["spec"] == {"image": IMAGE, "nodeSelector": SELECTOR}
    assert made["metadata"]["ownerReferences"] == [owner(uid_of(api))]
    assert made["metadata"]["annotations"]["gkm.io/kernel-cache-workload-footprint"] == WORKLOAD


@pytest.mark.usefixtures("running")
def test_a_deleted_gkm_cache_is_made_anew_and_a_changed_group_is_followed(api: FakeApi) -> None:
    until(lambda: caches(api), "a GKMCache")
    api.collect(GKMCACHES, ("gkmcaches", "ml", "qwen"))
    until(lambda: caches(api), "a GKMCache")
    api.put(KERNEL_CACHE_NODE_GROUPS, node_group(nodeSelector={"pool": "b"}))
    until(lambda: caches(api)[0]["spec"]["nodeSelector"] == {"pool": "b"}, "the nodes of the group")


@pytest.mark.usefixtures("running")
def test_a_group_that_comes_later_ends_the_error(api: FakeApi) -> None:
    api.put(KERNEL_CACHES, kernel_cache("qwen", "ml", group="later"))
    until(lambda: ready(api) == ("Error", "NodeGroupMissing"), "the error")
    api.put(KERNEL_CACHE_NODE_GROUPS, node_group("later", nodeSelector={"pool": "c"}))
    until(lambda: ready(api)[1] == "NotVerified", "the end of the error")
    assert caches(api)[0]["spec"]["nodeSelector"] == {"pool": "c"}


@pytest.mark.parametrize("owners", [(), (owner("uid-of-another") | {"kind": "Deployment"},)])
def test_a_gkm_cache_of_another_owner_is_never_written(api: FakeApi, idle: KServeController, owners: Any) -> None:  # noqa: ANN401 -- JSON
    put_cache(api, OTHER_IMAGE, owners)
    before = caches(api)
    idle.reconcile(KEY)
    assert caches(api) == before
    assert ready(api) == ("Error", "NameTaken")


def test_the_gkm_cache_of_an_earlier_kernel_cache_is_waited_out(api: FakeApi, idle: KServeController) -> None:
    put_cache(api, OTHER_IMAGE, (owner("uid-of-the-earlier"),))
    with pytest.raises(Retry, match="of an earlier KernelCache, and is deleted with it"):
        idle.reconcile(KEY)
    assert ready(api) == ("", "")


def test_a_changed_image_is_told_and_not_repaired(api: FakeApi, idle: KServeController) -> None:
    put_cache(api, OTHER_IMAGE, (owner(uid_of(api)),))
    idle.reconcile(KEY)
    assert ready(api) == ("Error", "CacheChanged")
    assert caches(api)[0]["spec"] == {"image": OTHER_IMAGE}


def test_a_gkm_cache_that_was_made_before_a_kill_is_found(api: FakeApi, idle: KServeController) -> None:
    api.fault = lambda verb, plural: (
        ApiError(500, "", "killed") if (verb, plural) == ("apply", "kernelcaches") else None
    )
    with pytest.raises(ApiError, match="killed"):
        idle.reconcile(KEY)
    assert len(caches(api)) == 1
    api.fault = lambda _verb, _plural: None
    idle.reconcile(KEY)
    assert ready(api) == ("Pending", "NotVerified")
    assert [verb for verb, plural, _ in api.calls if plural == "gkmcaches" and verb in {"create", "merge"}] == [
        "create"
    ]


def test_a_refusal_of_the_api_server_is_told_and_tried_again(api: FakeApi, idle: KServeController) -> None:
    api.fault = lambda verb, _plural: ApiError(403, "Forbidden", "exceeded quota") if verb == "create" else None
    with pytest.raises(Retry, match="exceeded quota"):
        idle.reconcile(KEY)
    assert ready(api) == ("Error", "CacheRefused")


def test_a_create_that_another_leader_won_is_tried_again(api: FakeApi, idle: KServeController) -> None:
    api.fault = lambda verb, _plural: ApiError(409, "AlreadyExists", "exists") if verb == "create" else None
    with pytest.raises(ApiError, match="exists"):
        idle.reconcile(KEY)


def test_a_second_pass_writes_nothing(api: FakeApi, idle: KServeController) -> None:
    idle.reconcile(KEY)
    seen = len(api.calls)
    idle.reconcile(KEY)
    assert {verb for verb, _, _ in api.calls[seen:]} == {"get"}


def test_a_kernel_cache_that_goes_gets_no_gkm_cache(api: FakeApi, idle: KServeController) -> None:
    found = kernel_cache("qwen", "ml")
    found["metadata"] |= {"deletionTimestamp": "2026-11-29T10:00:00Z", "finalizers": ["x/y"]}
    api.put(KERNEL_CACHES, found)
    idle.reconcile(KEY)
    idle.reconcile(("ml", "absent"))
    assert caches(api) == []


def test_without_its_status_nothing_of_kserve_is_written(api: FakeApi) -> None:
    made = KServeController(api, KServe(enabled=True, write_status=False), informers=Informers(api), calm=0.0)
    made.work()
    until(lambda: caches(api), "a GKMCache")
    made.stop()
    made.join(5.0)
    made.close_watches(5.0)
    assert {verb for verb, plural, _ in api.calls if plural == "kernelcaches"} <= {"get", "list", "watch"}


def test_switched_off_it_asks_for_nothing(api: FakeApi) -> None:
    made = KServeController(api, KServe(), informers=Informers(api))
    made.work()
    assert api.calls == []
