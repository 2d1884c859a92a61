"""ComputeDomains of PodCliqueSets where other writers, missing kinds and stale watches matter."""

from dataclasses import replace

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import EVENTS, Json
from gkm_operator.computedomains.presence import Presence
from support.grove.objects import NAMESPACE, compute_domain
from support.operator.domains import (
    AUTO,
    DOMAINS,
    NVIDIA,
    OURS,
    SETS,
    TEMPLATES,
    Process,
    World,
)
from support.operator.plans import PODS

AVAILABLE = Presence(available=True, sets=True)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    return Process(world.api)


def grove_domain(uid: str, index: int = 0, **meta: object) -> Json:
    """A ComputeDomain that Grove's operator wrote."""
    labels = {
        "app.kubernetes.io/managed-by": "grove-operator",
        "app.kubernetes.io/part-of": "test-pcs",
        "grove.io/podcliqueset-replica-index": str(index),
    }
    made = compute_domain(f"test-pcs-{index}", labels=labels)
    owner = {"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "name": "test-pcs", "uid": uid}
    made["metadata"] |= {"ownerReferences": [owner | {"controller": True}], "finalizers": [OURS], **meta}
    return made


def test_domains_that_grove_wrote_are_used_and_left_alone(world: World, process: Process) -> None:
    uid = world.create_set(replicas=2)
    for index in range(2):
        world.api.create(DOMAINS, grove_domain(uid, index))
    world.scale(1)
    for _ in range(3):
        process.observe()
        process.reconciler.enqueue_all()
        assert process.work() == []
    assert world.writes()[-1][:2] == ("merge", "podcliquesets")
    assert [event[2] for event in world.events()] == ["ComputeDomainNotOurs"] * 2
    assert len([call for call in world.api.calls if call[:2] == ("create", "events")]) == 2


def test_what_is_missing_beside_domains_of_grove_is_created(world: World, process: Process) -> None:
    uid = world.create_set(replicas=2)
    world.api.create(DOMAINS, grove_domain(uid))
    world.settle(process)
    assert world.domains() == ["test-pcs-0", "test-pcs-1"]
    assert [domain["metadata"]["name"] for domain in world.made()] == ["test-pcs-1"]


def test_where_grove_manages_domains_nothing_is_written_for_sets(world: World) -> None:
    process = Process(world.api)
    world.create_set("ours", replicas=2)
    world.settle(process)
    world.create_set("enrolled")
    world.create_set("other", annotations={})
    world.scale(1, "ours")
    process.reconciler.presence = replace(AVAILABLE, grove_manages=True, since="2026-01-01T00:00:00Z")
    before = world.writes()
    for _ in range(3):
        process.observe()
        process.reconciler.enqueue_all()
        assert process.work() == []
    assert world.writes() == before
    assert [event[:3] for event in world.events() if event[2] == "GroveManagesDomains"] == [
        ("enrolled", "Normal", "GroveManagesDomains"),
        ("ours", "Normal", "GroveManagesDomains"),
    ]
    world.delete_set("ours")
    world.settle(process)
    assert world.domains() == []


def test_domains_that_grove_creates_and_those_of_deleted_sets_are_not_missing(world: World) -> None:
    process = Process(world.api)
    for name in ("refused", "deleted"):
        world.create_set(name)
    exceeded = ApiError(403, "Forbidden", "exceeded quota")
    world.api.fault = lambda verb, plural: exceeded if (verb, plural) == ("create", "computedomains") else None
    process.observe()
    process.work()
    missing = process.reconciler.sets.missing
    assert {workload.name: count for workload, count in missing.items()} == {"refused": 1, "deleted": 1}
    process.reconciler.presence = Presence(message="the CRD is not installed", since="now")
    world.delete_set("deleted")
    process.observe()
    process.reconciler.enqueue_all()
    process.work()
    assert {workload.name: count for workload, count in missing.items()} == {"refused": 1}
    process.reconciler.presence = replace(AVAILABLE, grove_manages=True, since="2026-01-01T00:00:00Z")
    process.reconciler.enqueue_all()
    process.work()
    assert missing == {}


def test_without_the_kind_each_enrolled_set_gets_a_warning_and_work_goes_on_when_it_is_back(world: World) -> None:
    process = Process(world.api, presence=Presence(message="the CRD is not installed", since="now"))
    world.create_set("enrolled")
    world.create_set("other", annotations={AUTO: "disabled"})
    for _ in range(2):
        process.observe()
        process.reconciler.enqueue_all()
        assert process.work() == []
    assert world.events() == [("enrolled", "Warning", "DomainsUnavailable", "the CRD is not installed")]
    assert world.domains() == []
    process.reconciler.presence = AVAILABLE
    process.reconciler.enqueue_all()
    world.settle(process)
    assert world.domains() == ["enrolled-0"]


def test_a_watch_of_sets_that_lags_releases_nothing(world: World, process: Process) -> None:
    """Another leader saw the set, or its new replicas, before this one, and created the domains."""
    world.create_set(replicas=1)
    world.settle(process)
    world.scale(3)
    world.create_set("new")
    world.settle(Process(world.api))
    process.observe("computedomains")
    assert process.work() == []
    assert world.domains() == ["new-0", "test-pcs-0", "test-pcs-1", "test-pcs-2"]


def test_a_watch_of_domains_that_lags_creates_nothing_twice(world: World, process: Process) -> None:
    world.create_set(replicas=2)
    process.observe()
    world.settle(Process(world.api))
    before = world.events()
    assert process.work() == []
    assert world.domains() == ["test-pcs-0", "test-pcs-1"]
    assert world.events() == before


def test_the_domains_of_a_set_that_cannot_be_read_stay(world: World, process: Process) -> None:
    world.create_set(replicas=2)
    world.settle(process)
    world.api.merge(SETS, "test-pcs", {"spec": {"replicas": "many"}}, NAMESPACE)
    late = Process(world.api)
    late.observe()
    assert [str(error) for error in late.work()] == ["PodCliqueSet team/test-pcs cannot be read"]
    assert world.domains() == ["test-pcs-0", "test-pcs-1"]


def test_without_the_kind_podcliqueset_used_domains_stay_and_others_go(world: World, process: Process) -> None:
    world.create_set(replicas=2)
    world.settle(process)
    world.use("test-pcs-1", 4)
    world.api.served = {(kind.api_version, kind.plural) for kind in (DOMAINS, TEMPLATES, PODS, EVENTS)}
    late = Process(world.api)
    late.observe("computedomains", "resourceclaimtemplates")
    assert late.work() == []
    world.act()
    assert world.domains() == ["test-pcs-1"]
    assert "deletionTimestamp" not in world.domain("test-pcs-1")["metadata"]
    world.use("test-pcs-1", 0)
    late.observe("computedomains")
    assert late.work() == []
    world.act()
    assert world.domains() == []


def test_orphaned_domains_work_until_their_pods_have_ended(world: World, process: Process) -> None:
    """`kubectl delete --cascade=orphan`: the pods run on."""
    world.create_set()
    world.settle(process)
    world.use("test-pcs-0", 1)
    world.api.merge(DOMAINS, "test-pcs-0", {"metadata": {"ownerReferences": None}}, NAMESPACE)
    world.delete_set()
    world.settle(process)
    assert world.domain("test-pcs-0")["metadata"]["finalizers"] == [NVIDIA]
    world.use("test-pcs-0", 0)
    world.settle(process)
    assert world.domains() == []


def test_a_domain_of_the_same_name_that_came_meanwhile_is_not_deleted(world: World, process: Process) -> None:
    world.create_set()
    world.settle(process)
    world.scale(0)
    process.observe()
    world.api.merge(DOMAINS, "test-pcs-0", {"metadata": {"finalizers": None}}, NAMESPACE)
    world.api.delete(DOMAINS, "test-pcs-0", NAMESPACE)
    world.api.create(DOMAINS, compute_domain("test-pcs-0"))
    world.settle(process)
    assert world.domains() == ["test-pcs-0"]


def test_a_domain_that_replaced_a_half_released_one_is_not_deleted(world: World, process: Process) -> None:
    """A leader was killed between finalizer and DELETE, and the user was faster than the next one."""
    world.create_set()
    world.nvidia_runs = False
    world.settle(process)
    world.api.merge(DOMAINS, "test-pcs-0", {"metadata": {"finalizers": None}}, NAMESPACE)
    world.scale(0)
    process.observe()
    world.api.delete(DOMAINS, "test-pcs-0", NAMESPACE)
    world.api.create(DOMAINS, compute_domain("test-pcs-0"))
    (error,) = process.work()
    assert isinstance(error, ApiError)
    assert error.conflict
    world.settle(process)
    assert world.domains() == ["test-pcs-0"]


def test_a_foreign_domain_that_the_watch_has_not_shown_is_left_alone(world: World, process: Process) -> None:
    world.create_set()
    process.observe()
    world.api.create(DOMAINS, compute_domain("test-pcs-0"))
    assert process.work() == []
    (made,) = world.made()
    assert made["metadata"]["name"].startswith("test-pcs-0-")


def test_a_former_domain_that_the_watch_has_not_shown_is_waited_for(world: World, process: Process) -> None:
    world.create_set()
    world.settle(Process(world.api))
    world.delete_set()
    world.create_set()
    process.observe("podcliquesets")
    (error,) = process.work()
    assert str(error) == "a former ComputeDomain test-pcs-0 is not gone yet"
    assert world.domains() == ["test-pcs-0"]


def test_a_finalizer_that_another_controller_adds_meanwhile_is_not_lost(world: World, process: Process) -> None:
    world.create_set()
    process.observe()
    process.work()
    process.observe()
    world.scale(0)
    process.observe("podcliquesets")
    world.api.merge(DOMAINS, "test-pcs-0", {"metadata": {"finalizers": [OURS, NVIDIA]}}, NAMESPACE)
    (error,) = process.work()
    assert isinstance(error, ApiError)
    assert error.conflict
    assert world.domain("test-pcs-0")["metadata"]["finalizers"] == [OURS, NVIDIA]
    assert [event[2] for event in world.events()] == ["ComputeDomainCreated"]
    world.settle(process)
    assert world.domains() == []


def test_the_finalizer_goes_before_the_domain(world: World, process: Process) -> None:
    world.create_set()
    world.settle(process)
    world.scale(0)
    process.observe()
    seen: list[tuple[str, str, list[str]]] = []
    world.api.fault = lambda verb, plural: seen.append((verb, plural, finalizers(world)))
    assert process.work() == []
    assert [step for step in seen if step[0] in {"merge", "delete"}] == [
        ("merge", "computedomains", [OURS, NVIDIA]),
        ("delete", "computedomains", [NVIDIA]),
    ]


def finalizers(world: World) -> list[str]:
    return list(world.api._objects["computedomains", NAMESPACE, "test-pcs-0"]["metadata"]["finalizers"])


def test_of_two_domains_for_one_replica_the_younger_is_released(world: World, process: Process) -> None:
    """Two leaders saw different names taken."""
    world.create_set()
    world.settle(process)
    second = world.domain("test-pcs-0")["metadata"]
    copied = {key: second[key] for key in ("labels", "ownerReferences", "finalizers", "namespace")}
    world.api.create(DOMAINS, compute_domain("test-pcs-0-copy") | {"metadata": copied | {"name": "test-pcs-0-copy"}})
    world.settle(process)
    assert world.domains() == ["test-pcs-0"]
