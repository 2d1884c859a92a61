"""The controller as a process runs it: threads, watches, and providers as their pods run them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread

import pytest
from gkm.api.config import Config, parse
from gkm.api.topology_status import parse_status
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm_operator.hypernodes import controller as module
from gkm_operator.hypernodes.controller import TopologyController
from gkm_operator.hypernodes.providers.command import ProviderCode
from gkm_operator.hypernodes.writes.hypernodes import QUIET_SECONDS
from support.host.waiting import scaled, until
from support.kube.leading import leading
from support.kube.queues import is_idle
from support.operator.topology import SYSTEM, TOPOLOGY, World, racks, settings
from support.topology import tree_provider
from support.topology.provider_pods import ProviderPod, pod

NODES = racks(2, 2, 2)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(module, "REST", 0.0)
    monkeypatch.setattr("gkm_operator.hypernodes.report.INTERVAL_SECONDS", 0.0)


@contextmanager
def running(world: World, *, leads: bool = True, succeeds: bool = False) -> Iterator[TopologyController]:
    controller = TopologyController(
        leading(world.api, lambda: leads),
        world.config,
        instance="test",
        namespace=SYSTEM,
        check_seconds=0.3,
        calm_seconds=0.02,
        backoff=Backoff(0.02, 0.1),
        succeeds=lambda: succeeds,
    )
    controller.work()
    try:
        yield controller
    finally:
        controller.close()


def is_placed(world: World, name: str, **expected: str) -> bool:
    return world.place(name) == expected


def reasons(world: World) -> dict[str, str]:
    try:
        found = parse_status(world.report()["status"])
    except ApiError:
        return {}
    return {one.type: one.reason for one in found.conditions}


def test_changes_of_labels_reach_hypernodes_and_the_report() -> None:
    world = World(NODES)
    with running(world):
        until(lambda: is_placed(world, "node-1-1-1", rack="rack-r1-1", block="block-b1"), "the tree is written")
        world.label("node-1-1-1", rack="r0-0", block="b0")
        until(lambda: is_placed(world, "node-1-1-1", rack="rack-r0-0", block="block-b0"), "the node has moved")
        until(lambda: reasons(world).get("HyperNodesWritten") == "UpToDate", "the report")
    assert world.api.violations == []


def test_a_process_that_does_not_lead_writes_nothing() -> None:
    world = World(NODES)
    before = len(world.api.calls)
    with running(world, leads=False) as controller:
        until(lambda: controller.tree.approved is not None, "the tree that it would write")
        until(
            lambda: "no longer holds the lease" in controller.sinks["hypernodes"].finding.message,
            "its write is refused",
        )
    assert world.api.hypernodes() == {}
    assert {verb for verb, _, _ in world.api.calls[before:]} <= {"get", "list", "watch"}


def test_volcano_that_comes_later_is_used_without_a_restart() -> None:
    world = World(NODES)
    world.api.served = {("v1", "nodes"), ("v1", "configmaps"), ("events.k8s.io/v1", "events")}
    with running(world):
        until(lambda: reasons(world).get("HyperNodesWritten") == "KindMissing", "it waits and says so")
        world.api.served = None
        until(lambda: is_placed(world, "node-0-0-0", rack="rack-r0-0", block="block-b0"), "the tree is written")


def test_broken_watches_and_an_api_that_is_away_are_survived() -> None:
    world = World(NODES)
    with running(world):
        until(lambda: len(world.api.hypernodes()) == 6, "the tree is written")
        world.api.fault = lambda _verb, _plural: ApiError(0, "", "away")
        world.api.cut(ApiError(0, "", "broken"))
        world.api.forget_history()
        world.api.fault = lambda _verb, _plural: None
        world.label("node-0-0-0", rack="r1-0", block="b1")
        until(lambda: is_placed(world, "node-0-0-0", rack="rack-r1-0", block="block-b1"), "the node has moved", 60)
    assert world.api.violations == []


def of_file(tmp_path: Path, *others: str) -> Config:
    """A configuration with the provider `file` first."""
    names = [{"name": "file", "config": {"path": str(tmp_path / "tree")}}, *({"name": name} for name in others)]
    return parse(json.dumps({"topology": TOPOLOGY | {"providers": names}}))


@contextmanager
def pod_of_file(world: World) -> Iterator[ProviderPod]:
    """The pod of the provider `file`."""
    settings = world.config.topology.providers[0]
    with pod(world.api, settings, ProviderCode(f"{tree_provider.__name__}:file"), world.config) as running_pod:
        yield running_pod


def test_nothing_is_written_before_an_external_provider_has_served_and_then_it_comes_first(tmp_path: Path) -> None:
    world = World(NODES, of_file(tmp_path, "labels"))
    with running(world) as controller, pod_of_file(world):
        until(lambda: controller.sources[1].placements, "labels have served")
        until(lambda: reasons(world).get("ProvidersServing") == "ProvidersStarting", "the report")
        assert world.api.hypernodes() == {}
        (tmp_path / "tree").write_text("x node-0-0-0 node-0-0-1 node-1-0-0 node-1-0-1\n")
        until(lambda: is_placed(world, "node-1-0-0", rack="rack-r1-0", block="block-x"), "the tree is written")
        until(lambda: is_placed(world, "node-0-1-0", rack="rack-r0-1", block="block-b0"), "labels count as well")
    assert world.api.violations == []


def test_a_provider_that_fails_changes_nothing_and_is_reported_whoever_restarts(tmp_path: Path) -> None:
    world = World(NODES, of_file(tmp_path))
    tree = tmp_path / "tree"
    tree.write_text("x node-0-0-0 node-0-0-1\ny node-1-0-0\n")
    with running(world) as controller:
        with pod_of_file(world) as first:
            until(lambda: set(world.api.hypernodes()) == {"block-x", "block-y"}, "the tree is written")
            before = world.api.states
            tree.write_text("x node-0-0-0\nfail\n")
            first.failed()
        until(lambda: reasons(world).get("ProvidersServing") == "ProviderFailed", "it is reported")
        until(lambda: is_idle(controller.queue), "all is decided")
        assert world.api.states == before
    with running(world) as controller:
        until(lambda: controller.sources[0].placements, "the next leader has the last good tree")
        until(lambda: is_idle(controller.queue), "all is decided")
        assert world.api.states == before
        tree.write_text("x node-0-0-0\ny node-1-0-0\n")
        with pod_of_file(world):
            until(lambda: is_placed(world, "node-0-0-1"), "it serves again", 60)
            until(lambda: reasons(world).get("ProvidersServing") == "ProvidersServing", "it is reported")


def test_two_leaders_at_once_converge() -> None:
    """The one that was leader may still send requests: versions protect each object."""
    world = World(NODES)
    with running(world), running(world):
        until(lambda: len(world.api.hypernodes()) == 6, "the tree is written")
    world.process().settle()
    assert world.api.violations == []
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b0"}


def test_the_default_configuration_starts_no_thread() -> None:
    world = World({}, settings(hyperNodes={"enabled": False}))
    with running(world) as controller:
        assert controller._thread.ident is None


def test_a_sink_whose_kind_fails_does_not_delay_the_others() -> None:
    world = World(NODES, settings(kueue="gpus", nodeLabels=True))
    world.api.fault = lambda _verb, plural: ApiError(500, "InternalError", "away") if plural == "topologies" else None
    with running(world):
        until(lambda: is_placed(world, "node-0-0-0", rack="rack-r0-0", block="block-b0"), "the tree is written")
        until(lambda: reasons(world).get("KueueTopologyWritten") == "WriteFailed", "the report")
        world.api.fault = lambda _verb, _plural: None
        until(lambda: reasons(world).get("KueueTopologyWritten") == "UpToDate", "it is written")


def test_a_leader_after_another_writes_no_hypernode_before_its_requests_are_over() -> None:
    world = World(NODES, settings(nodeLabels=True))
    with running(world, succeeds=True):
        until(lambda: world.levels("node-1-1-1"), "labels are written")
        until(lambda: reasons(world).get("HyperNodesWritten") == "Writing", "it waits")
    assert world.api.hypernodes() == {}


def test_the_lease_is_not_released_while_a_request_may_arrive() -> None:
    """One of an earlier leader, or one that got no answer."""
    world = World(NODES)
    with running(world, succeeds=True) as controller:
        assert not controller.close()
    world.api.fault = lambda verb, plural: (
        ApiError(0, "", "timed out") if (verb, plural) == ("create", "hypernodes") else None
    )
    with running(world) as controller:
        until(lambda: reasons(world).get("HyperNodesWritten") == "WriteFailed", "a request without an answer")
        assert not controller.close()
        controller.writer._clock = lambda: time.monotonic() + QUIET_SECONDS
        assert controller.close()


def test_who_writes_no_hypernodes_releases_the_lease_at_once() -> None:
    world = World(NODES, settings(hyperNodes={"enabled": False}, nodeLabels=True))
    with running(world, succeeds=True) as controller:
        assert controller.close()


def test_a_process_whose_look_has_not_ended_is_not_quiet() -> None:
    """Its thread may still start what writes."""
    world, looks, go_on = World(NODES), Event(), Event()

    def stuck(verb: str, plural: str) -> ApiError | None:
        if (verb, plural) == ("list", "hypernodes") and current_thread().name == "topology":
            looks.set()
            go_on.wait(scaled(30))
        return None

    world.api.fault = stuck
    with running(world) as controller:
        assert looks.wait(scaled(10))
        controller.stop()
        controller.join(time.monotonic() + 0.1)
        assert not controller.is_quiet
        go_on.set()
        controller.join(time.monotonic() + scaled(10))
        assert controller.is_quiet
