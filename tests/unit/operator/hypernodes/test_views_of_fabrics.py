"""What children that read fabrics see of the cluster, and what each provider waits for."""

from collections.abc import Iterable
from threading import Thread
from typing import Any

import msgspec
import pytest
from gkm.api.fabrics import NodeFabric
from gkm.kube.api import EVERYTHING, PAGE_LIMIT, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, Resource
from gkm.kube.workqueue import Retry
from gkm.topology.hypernodes import Member
from gkm.topology.providers import ClusterNode
from gkm_operator.hypernodes.providers.mailbox import Value
from gkm_operator.hypernodes.providers.messages import Key
from gkm_operator.hypernodes.survey_feed import MAX_SURVEYS
from support.operator.fabric_worlds import (
    FABRICS,
    NETWORK,
    OTHER,
    SURVEYOR,
    fabric,
    ports,
    settings,
    survey,
    world_with,
)
from support.operator.nodes import put
from support.operator.topology import SYSTEM, Process, World
from support.topology.observed import packed


def published(process: Process) -> dict[str, bytes]:
    """The surveys that the child would get, by node."""
    values = process.controller._host.view._values
    return {name: getattr(value, "data", b"") for (kind, name), value in values.items() if kind == "Survey"}


def test_a_survey_that_cannot_be_fetched_is_tried_again_and_holds_up_no_other() -> None:
    world = world_with("infiniband")
    world.label(OTHER, surveys="yes")
    for node in (SURVEYOR, OTHER):
        world.api.create(CONFIGMAPS, survey(node, node.encode()))
    process = world.process()
    process.observe()
    faults = [ApiError(503, "", "away"), None]
    world.api.fault = lambda verb, plural: faults.pop(0) if (verb, plural) == ("get", "configmaps") else None
    with pytest.raises(ApiError, match="503: away"):
        process.controller.surveys.publish()
    assert [*published(process)] == [OTHER]
    world.api.fault = lambda _verb, _plural: None
    process.controller.surveys.publish()
    assert published(process) == {name: packed(name.encode()) for name in (SURVEYOR, OTHER)}


def test_surveys_of_the_first_nodes_count_and_others_are_removed() -> None:
    world = World(
        {f"node-{number:03}": {"surveys": "yes"} for number in range(MAX_SURVEYS + 2)}, settings("infiniband")
    )
    for number in range(MAX_SURVEYS + 2):
        world.api.create(CONFIGMAPS, survey(f"node-{number:03}", b"x"))
    process = world.process()
    process.observe()
    process.controller.surveys.publish()
    assert sorted(published(process)) == [f"node-{number:03}" for number in range(MAX_SURVEYS)]
    world.remove("node-000")
    process.observe()
    process.controller.surveys.publish()
    assert sorted(published(process)) == [f"node-{number:03}" for number in range(1, MAX_SURVEYS + 1)]


def test_a_provider_waits_for_its_own_watches_only() -> None:
    world = world_with("infiniband")
    process = world.process()
    watcher = process.controller.watcher
    watcher._watches._started.extend(watcher.wanted)
    for reflector in (watcher.nodes, watcher.fabrics):
        reflector._list()
    assert watcher.synced
    assert watcher.awaited("labels") == ""
    assert watcher.awaited("infiniband").startswith("waits for the list of configmaps")
    with pytest.raises(Retry, match="the surveys are not listed yet"):
        process.controller.surveys.publish()
    watcher.surveys._list()
    assert watcher.awaited("infiniband") == ""


@pytest.mark.parametrize(
    ("provider", "waits"),
    [
        ("infiniband", True),
        ("lldp", True),
        ("ufm", True),
        ("an-entry-point", True),
        ("tree-file", False),
    ],
)
def test_those_providers_wait_for_nodefabrics_that_see_them_or_their_guids(provider: str, *, waits: bool) -> None:
    watcher = World({}, settings(provider)).process().controller.watcher
    assert (watcher.fabrics in watcher.wanted) is waits
    for reflector in (watcher.nodes, watcher.surveys):
        reflector._list()
    assert watcher.awaited(provider).startswith("waits for the list of nodefabrics" if waits else "") is True
    assert bool(watcher.awaited(provider)) is waits


def test_infiniband_starts_when_every_chosen_survey_was_fetched_or_is_gone() -> None:
    world = world_with("infiniband")
    gone, late = "node-002", "node-003"
    for node in (SURVEYOR, OTHER, gone, late):
        world.label(node, surveys="" if node == late else "yes")
        world.api.create(CONFIGMAPS, survey(node, node.encode()))
    process = world.process()
    process.observe()
    watcher, feed = process.controller.watcher, process.controller.surveys
    assert watcher.awaited("infiniband").startswith("waits for 3 surveys")
    faults = [ApiError(503, "", "away"), None, ApiError(404, "NotFound", "gone")]
    world.api.fault = lambda verb, plural: faults.pop(0) if (verb, plural) == ("get", "configmaps") else None
    with pytest.raises(ApiError, match="NotFound: gone"):  # the last of the two failures
        feed.publish()
    assert watcher.awaited("infiniband").startswith("waits for 1 survey,")
    world.api.fault = lambda _verb, _plural: None
    feed.publish()
    assert watcher.awaited("infiniband") == ""
    world.label(late, surveys="yes")
    process.observe()
    assert watcher.awaited("infiniband").startswith("waits for 1 survey,")


def test_a_survey_that_was_gone_when_it_was_fetched_holds_up_nothing() -> None:
    world = world_with("infiniband")
    world.api.create(CONFIGMAPS, survey(SURVEYOR, b"x"))
    process = world.process()
    process.observe()
    world.api.delete(CONFIGMAPS, survey(SURVEYOR, b"x")["metadata"]["name"], SYSTEM)
    with pytest.raises(ApiError, match=r"configmaps .* not found"):
        process.controller.surveys.publish()
    assert process.controller.watcher.awaited("infiniband") == ""
    world.api.create(CONFIGMAPS, survey(SURVEYOR, b"x"))
    process.controller.surveys.publish()
    assert [*published(process)] == [SURVEYOR]


def test_surveys_are_listed_in_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with("infiniband")
    limits: dict[str, int] = {}
    listed = world.api.list_pages

    def list_pages(resource: Resource[Any], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT) -> object:
        limits[resource.plural] = limit
        return listed(resource, selector, limit)

    monkeypatch.setattr(world.api, "list_pages", list_pages)
    world.process().observe()
    assert (limits["configmaps"], limits["nodes"]) == (32, 250)


def test_the_state_of_a_port_changes_nothing_that_children_see() -> None:
    world = world_with("infiniband")
    process = world.process()
    process.observe()
    view = process.controller._host.view
    before = dict(view._values)
    put(world.api, FABRICS, fabric(OTHER, infiniband=ports(OTHER, "DOWN")))
    process.observe()
    after = view._values
    assert after[("Ports", OTHER)] is before[("Ports", OTHER)]


def test_a_node_has_its_guids_when_its_nodefabric_comes_while_the_node_is_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World({SURVEYOR: {}}, settings("ufm"))
    put(world.api, FABRICS, fabric(SURVEYOR, infiniband=ports(SURVEYOR)))
    process = world.process()
    watcher, view = process.controller.watcher, process.controller._host.view
    other = Thread(target=watcher.fabrics._list)
    publish = view.publish

    def published_late(changed: Iterable[Value], deleted: Iterable[Key] = ()) -> None:
        if other.ident is None:
            other.start()
            # Time to publish what it has read, if it can.
            other.join(0.5)
        publish(changed, deleted)

    monkeypatch.setattr(view, "publish", published_late)
    watcher.nodes._list()
    other.join()
    node = view.get(Member("Node", SURVEYOR))
    assert isinstance(node, ClusterNode)
    assert set(node.guids) == {port["portGUID"] for port in ports(SURVEYOR)}


def test_the_reduced_nodefabric_is_one_that_the_child_decodes() -> None:
    world = world_with("lldp")
    process = world.process()
    process.observe()
    for watched in process.controller.watcher.fabrics.values():
        ports, neighbors = (msgspec.json.decode(one, type=NodeFabric) for one in (watched.ports, watched.neighbors))
        assert ports.metadata.name == neighbors.metadata.name == watched.metadata.name
        assert [port.state for port in ports.status.infiniband] == [""] * (NETWORK.rails + 1)
        assert [link.interface for link in neighbors.status.ethernet] == ["eth0"]
