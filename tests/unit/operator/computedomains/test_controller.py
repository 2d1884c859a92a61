"""The controller with its threads, against an API in memory: it starts when it can, and goes on when it can again."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from gkm.api.config import Config
from gkm.api.domain_capacity import DomainCapacity, parse_conditions
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, Json, Resource
from gkm_operator import last_write, metrics
from gkm_operator.computedomains import capacity
from gkm_operator.computedomains.capacity import CapacityReport
from gkm_operator.computedomains.controller import DomainsController
from gkm_operator.computedomains.presence import Presence
from support.grove.imex import publish
from support.grove.objects import NAMESPACE
from support.host.waiting import scaled, until
from support.operator.domains import ON, World

SOON = Backoff(0.001, 0.002)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def controller(world: World) -> Iterator[DomainsController]:
    made = DomainsController(world.api, Config(network=ON), check_seconds=0.01, backoff=SOON)
    yield made
    made.close()


def test_domains_follow_a_set(world: World, controller: DomainsController) -> None:
    controller.work()
    world.create_set(replicas=2)
    until(lambda: world.domains() == ["test-pcs-0", "test-pcs-1"], "both domains")
    world.scale(0)
    until(lambda: world.domains() == [], "no domain")
    metrics.record_depths([controller])
    page = metrics.page().body.decode()
    assert 'gkm_reconcile_seconds_count{controller="computedomains",result="done"}' in page
    assert 'gkm_queue_depth{controller="computedomains"}' in page


def test_it_waits_for_the_kinds_and_starts_when_they_come(world: World, controller: DomainsController) -> None:
    world.create_set()
    absent = {"computedomains"}
    world.api.fault = lambda _, plural: ApiError(404, "", "404 page not found") if plural in absent else None
    controller.work()
    until(lambda: controller.presence.reason == "KindMissing", "it has looked")
    assert [call for call in world.api.calls if call[0] == "watch"] == []
    absent.clear()
    until(lambda: world.domains() == ["test-pcs-0"], "the domain")


def written(world: World) -> dict[str, str]:
    """The data of the ConfigMap gkm-domains."""
    found = world.api._objects.get(("configmaps", "gkm-system", "gkm-domains"), {})
    return dict(found.get("data", {}))


def test_a_new_leader_without_the_kind_reports_it_and_no_capacity_of_an_earlier_one(
    world: World, controller: DomainsController
) -> None:
    earlier = CapacityReport(
        world.api, "gkm-system", capacity=DomainCapacity, conditions=Presence(available=True).conditions
    )
    earlier.write("gkm-domains")
    absent = {"computedomains"}
    world.api.fault = lambda _, plural: ApiError(404, "", "404 page not found") if plural in absent else None
    controller.work()
    until(lambda: '"reason":"KindMissing"' in written(world)["conditions"], "the condition")
    condition = parse_conditions(written(world)["conditions"])[0]
    assert (condition.type, condition.status) == ("DomainsAvailable", "False")
    assert set(written(world)) == {"conditions"}
    absent.clear()
    until(lambda: "capacity" in written(world), "the capacity")
    assert parse_conditions(written(world)["conditions"])[0].status == "True"


def test_a_deleted_report_comes_back_while_nothing_changes(
    world: World, controller: DomainsController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_write, "REPEAT_SECONDS", 0.0)
    monkeypatch.setattr(capacity, "INTERVAL_SECONDS", 0.0)
    controller.work()
    until(lambda: "capacity" in written(world), "the capacity")
    world.api.delete(CONFIGMAPS, "gkm-domains", "gkm-system")
    until(lambda: "capacity" in written(world), "the capacity again, which admission needs")


def test_it_waits_for_rights(world: World, controller: DomainsController) -> None:
    world.create_set()
    denied = {"resourceclaimtemplates"}
    world.api.fault = lambda _, plural: ApiError(403, "Forbidden", "denied") if plural in denied else None
    controller.work()
    until(lambda: controller.presence.reason == "RightsMissing", "it has looked")
    denied.clear()
    until(lambda: world.domains() == ["test-pcs-0"], "the domain")


def test_without_podcliquesets_labels_work_and_sets_do_when_they_come(
    world: World, controller: DomainsController
) -> None:
    absent = {"podcliquesets"}
    world.api.fault = lambda _, plural: ApiError(404, "", "404 page not found") if plural in absent else None
    controller.work()
    world.pod("p", "train")
    until(lambda: world.domains() == ["train"], "the domain of the label")
    absent.clear()
    world.create_set()
    until(lambda: world.domains() == ["test-pcs-0", "train"], "the domain of the set")


def test_a_kind_that_is_removed_later_is_reported_and_work_goes_on_when_it_is_back(
    world: World, controller: DomainsController
) -> None:
    controller.work()
    world.create_set("first")
    until(lambda: world.domains() == ["first-0"], "the domain")
    absent = {"computedomains"}
    world.api.fault = lambda _, plural: ApiError(404, "", "404 page not found") if plural in absent else None
    until(lambda: not controller.presence.available, "it has looked")
    world.create_set("second")
    until(lambda: ("second", "DomainsUnavailable") in [(one[0], one[2]) for one in world.events()], "an event")
    until(lambda: ("first", "DomainsUnavailable") in [(one[0], one[2]) for one in world.events()], "an event")
    absent.clear()
    until(lambda: world.domains() == ["first-0", "second-0"], "both domains")


def test_a_namespace_whose_requests_hang_delays_no_other(
    world: World, controller: DomainsController, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, create, hanging_now = Event(), world.api.create, []

    def hanging(resource: Resource[Any], value: Json) -> object:
        if resource.plural == "computedomains" and value["metadata"]["namespace"] == NAMESPACE:
            hanging_now.append(value)
            release.wait(scaled(30.0))
        return create(resource, value)

    monkeypatch.setattr(world.api, "create", hanging)
    for number in range(8):
        world.create_set(f"hangs-{number}")
    controller.work()
    try:
        until(lambda: len(hanging_now) == len(controller.queue._threads) // 2, "half of the workers are busy")
        world.create_set("other", namespace="other")
        until(lambda: world.domains() == ["other-0"], "the domain of the other namespace")
    finally:
        release.set()


def test_a_stop_ends_it_while_the_api_server_is_away(world: World, controller: DomainsController) -> None:
    world.api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
    controller.work()
    until(lambda: len(world.api.calls) > 2, "it has tried")
    controller.close()
    assert not controller._thread.is_alive()


def test_readiness_follows_who_runs_the_imex_daemons(world: World, controller: DomainsController) -> None:
    controller.work()
    until(lambda: controller.presence.available, "it has looked")
    assert not controller.status.observer.host_imex
    publish(world.api, host_managed=True)
    until(lambda: controller.status.observer.host_imex, "the mode of the hosts")
    publish(world.api, host_managed=False)
    until(lambda: not controller.status.observer.host_imex, "the mode of the driver")
