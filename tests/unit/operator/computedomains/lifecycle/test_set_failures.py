"""Creations and deletions of ComputeDomains that fail, and the events about all of them."""

from collections.abc import Callable

import pytest
from gkm.kube.errors import ApiError
from gkm_operator.computedomains.pacing import CREATION_BATCH, CREATION_BURST
from gkm_operator.computedomains.presence import Presence
from support.grove.objects import NAMESPACE, pod_clique_set
from support.operator.domains import ENROLLED, SETS, Process, World, grouped

AVAILABLE = Presence(available=True, sets=True)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def process(world: World) -> Process:
    return Process(world.api)


def refusing(verb: str, name: str, status: int = 403) -> Callable[[World], None]:
    """Let the API refuse one verb on one ComputeDomain."""

    def install(world: World) -> None:
        send = getattr(world.api, verb)

        def refused(resource: object, value: object, *words: object, **more: object) -> object:
            found = value["metadata"]["name"] if isinstance(value, dict) else value
            if resource is not SETS and getattr(resource, "plural", "") == "computedomains" and found == name:
                raise ApiError(status, "Forbidden", "exceeded quota")
            return send(resource, value, *words, **more)

        setattr(world.api, verb, refused)

    return install


def test_each_domain_has_an_event_on_its_set(world: World, process: Process) -> None:
    world.create_set("my-pcs", replicas=2)
    world.settle(process)
    world.scale(1, "my-pcs")
    world.settle(process)
    assert world.events() == [
        ("my-pcs", "Normal", "ComputeDomainCreated", "ComputeDomain my-pcs-0 created"),
        ("my-pcs", "Normal", "ComputeDomainCreated", "ComputeDomain my-pcs-1 created"),
        ("my-pcs", "Normal", "ComputeDomainDeleted", "ComputeDomain my-pcs-1 deleted"),
    ]


@pytest.mark.parametrize("status", [500, 503, 504])
def test_a_failed_creation_is_reported_and_retried_and_the_others_are_tried(
    world: World, process: Process, status: int
) -> None:
    world.create_set("my-pcs", replicas=4)
    refusing("create", "my-pcs-2", status)(world)
    process.observe()
    (error,) = process.work()
    assert isinstance(error, ApiError)
    assert world.domains() == ["my-pcs-0", "my-pcs-1", "my-pcs-3"], "a webhook that fails for one domain stops others"
    note = "Failed to create ComputeDomain for replica 2: exceeded quota"
    assert ("my-pcs", "Warning", "ComputeDomainFailed", note) in world.events()
    assert [key.name for key in process.keys] == ["my-pcs"]
    assert process.reconciler.sets.missing == {next(iter(process.keys)): 4}


def test_a_domain_that_existed_and_went_meanwhile_is_created_later(world: World, process: Process) -> None:
    world.create_set("my-pcs")
    process.observe()
    exists = ApiError(409, "AlreadyExists", "")
    world.api.fault = lambda verb, plural: exists if (verb, plural) == ("create", "computedomains") else None
    assert [str(error) for error in process.work()] == [f"ComputeDomain {NAMESPACE}/my-pcs-0 went meanwhile"]
    assert world.events() == []
    world.api.fault = lambda _verb, _plural: None
    world.settle(process)
    assert world.domains() == ["my-pcs-0"]


@pytest.mark.parametrize("status", [403, 422])
def test_a_quota_that_is_exceeded_ends_the_creations_of_a_reconcile(
    world: World, process: Process, status: int
) -> None:
    """The next request would be refused, too; the domains that are not required any more go all the same."""
    world.create_set("my-pcs", *grouped("old"), annotations={})
    world.settle(process)
    groups = {"spec": {"replicas": 100, "template": {"cliques": grouped("new")}}}
    world.api.merge(SETS, "my-pcs", groups, NAMESPACE)
    refusing("create", "my-pcs-2-new", status)(world)
    process.observe()
    before = len(world.writes())
    assert len(process.work()) == 1
    assert world.writes()[before:] == [
        ("merge", "computedomains", "my-pcs-0-old"),
        ("delete", "computedomains", "my-pcs-0-old"),
        ("create", "computedomains", "my-pcs-0-new"),
        ("create", "computedomains", "my-pcs-1-new"),
    ]
    assert len([event for event in world.events() if event[2] == "ComputeDomainFailed"]) == 1


def test_one_reconcile_creates_25_domains_and_the_rest_later(world: World, process: Process) -> None:
    world.create_set(replicas=60)
    process.observe()
    numbers = []
    for _ in range(4):
        assert process.work() == []
        numbers.append(len(world.domains()))
        process.observe()
        process.pass_time(1.0)
    assert numbers == [25, 50, 60, 60]


def test_one_reconcile_releases_25_domains_and_the_rest_later(world: World, process: Process) -> None:
    world.create_set(replicas=60)
    world.settle(process)
    world.scale(0)
    process.observe()
    assert process.work() == []
    assert len(going(world)) == 25
    world.settle(process)
    assert world.domains() == []


def going(world: World) -> list[str]:
    return [name for name in world.domains() if "deletionTimestamp" in world.domain(name)["metadata"]]


def test_domains_that_only_pods_hold_delay_no_others(world: World, process: Process) -> None:
    world.create_set(replicas=60)
    world.settle(process)
    for domain in world.domains():
        world.use(domain, 1)
    world.settle(process)
    world.scale(0)
    world.settle(process)
    assert len(going(world)) == 60
    world.create_set("other", replicas=30)
    world.settle(process)
    assert len(world.domains()) == 90
    process.reconciler.enqueue_all()
    before = len(world.api.calls)
    assert process.work() == []
    assert world.api.calls[before:] == []


def test_a_namespace_creates_a_burst_and_then_three_domains_a_second(world: World, process: Process) -> None:
    """NVIDIA's controller reconciles ten times a second, and three times for each new domain."""
    world.create_set("first", replicas=250)
    world.create_set("second", replicas=250)
    world.pod("p", "train")
    for _ in range(20):
        process.observe()
        assert process.work() == []
        process.pass_time(1.0)
    seconds = process.seconds
    made = len(world.domains())
    assert CREATION_BURST <= made <= CREATION_BURST + 3 * (seconds + CREATION_BATCH)
    while process.wait(3 * CREATION_BATCH / 3 + 1):
        process.observe()
        assert process.work() == []
    assert len(world.domains()) == 501
    assert process.seconds >= (501 - CREATION_BURST) / 3 - CREATION_BATCH


def test_a_namespace_that_waits_delays_no_other(world: World, process: Process) -> None:
    world.create_set("big", replicas=400)
    for _ in range(16):
        process.observe()
        assert process.work() == []
        process.pass_time(1.0)
    assert len(world.domains()) < 400
    world.api.create(SETS, pod_clique_set("small", annotations=ENROLLED, replicas=20, namespace="other"))
    process.observe()
    assert process.work() == []
    assert len([name for name in world.domains() if name.startswith("small-")]) == 20


def test_the_group_of_a_failed_domain_is_named(world: World, process: Process) -> None:
    world.create_set("my-pcs", *grouped("workers"), annotations={})
    refusing("create", "my-pcs-0-workers")(world)
    process.observe()
    process.work()
    (event,) = world.events()
    assert event[3] == "Failed to create ComputeDomain for group workers of replica 0: exceeded quota"


def test_a_failure_that_lasts_does_not_flood_the_set_with_events(world: World, process: Process) -> None:
    world.create_set()
    count = iter(range(1000))
    world.api.fault = lambda verb, plural: (
        ApiError(403, "Forbidden", f"request {next(count)}") if (verb, plural) == ("create", "computedomains") else None
    )
    for _ in range(100):
        process.observe()
        process.work()
    assert len(world.events()) == 25


def test_while_the_api_server_is_away_only_one_request_is_tried(world: World, process: Process) -> None:
    world.create_set(replicas=100)
    process.observe()
    world.api.calls.clear()
    world.api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
    assert len(process.work()) == 1
    assert world.api.calls == [("create", "computedomains", "test-pcs-0")]


def test_a_failed_deletion_is_reported_and_retried(world: World, process: Process) -> None:
    world.create_set("my-pcs", replicas=2)
    world.settle(process)
    refusing("delete", "my-pcs-1")(world)
    world.scale(1, "my-pcs")
    process.observe()
    assert len(process.work()) == 1
    note = "Failed to delete ComputeDomain my-pcs-1: exceeded quota"
    assert ("my-pcs", "Warning", "ComputeDomainFailed", note) in world.events()


def test_a_set_that_requires_too_many_domains_says_so(
    world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gkm_operator.mnnvl.required.MAX_DOMAINS", 2)
    world.create_set(replicas=3)
    world.settle(process)
    assert world.domains() == ["test-pcs-0", "test-pcs-1"]
    assert any("the limit of a PodCliqueSet is 2" in event[3] for event in world.events())
