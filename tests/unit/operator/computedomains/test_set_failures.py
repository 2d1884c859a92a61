"""Creations and deletions of ComputeDomains that fail, and the events about all of them."""

from collections.abc import Callable

import pytest
from gkm.kube.errors import ApiError
from gkm_operator.computedomains.presence import Presence
from support.operator.domains import SETS, Process, World, grouped

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


def test_a_failed_creation_is_reported_and_retried_and_the_others_are_tried(world: World, process: Process) -> None:
    world.create_set("my-pcs", replicas=4)
    refusing("create", "my-pcs-2")(world)
    process.observe()
    (error,) = process.work()
    assert isinstance(error, ApiError)
    assert world.domains() == ["my-pcs-0", "my-pcs-1", "my-pcs-3"]
    note = "Failed to create ComputeDomain for replica 2: exceeded quota"
    assert ("my-pcs", "Warning", "ComputeDomainFailed", note) in world.events()
    assert [key.name for key in process.keys] == ["my-pcs"]
    assert process.reconciler.sets.missing == {next(iter(process.keys)): 4}


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
