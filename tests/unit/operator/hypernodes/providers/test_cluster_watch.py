"""What providers that read fabrics see of the cluster, and what each of them waits for."""

from collections.abc import Iterable, Mapping
from threading import Thread
from typing import Any

import msgspec
import pytest
from gkm.api.fabrics import NodeFabric
from gkm.kube.api import EVERYTHING, PAGE_LIMIT, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, Resource
from gkm.kube.workqueue import Retry
from gkm_operator.hypernodes.providers.cluster_watch import MAX_SURVEYS
from gkm_operator.hypernodes.providers.view import Kind, Value
from support.host.waiting import until
from support.operator.fabric_worlds import (
    FABRICS,
    NETWORK,
    OTHER,
    SURVEYOR,
    Watching,
    fabric,
    ports,
    settings,
    survey,
    world_with,
)
from support.operator.nodes import put
from support.operator.topology import SYSTEM, World
from support.topology.observed import packed


def published(watching: Watching) -> Mapping[str, bytes]:
    """The surveys that the provider sees, by node."""
    return watching.view.surveys()


def test_a_survey_that_cannot_be_fetched_is_tried_again_and_holds_up_no_other() -> None:
    world = world_with("infiniband")
    world.label(OTHER, surveys="yes")
    for node in (SURVEYOR, OTHER):
        world.api.create(CONFIGMAPS, survey(node, node.encode()))
    watching = Watching(world)
    watching.observe()
    faults = [ApiError(503, "", "away"), None]
    world.api.fault = lambda verb, plural: faults.pop(0) if (verb, plural) == ("get", "configmaps") else None
    with pytest.raises(ApiError, match="503: away"):
        watching.surveys.publish()
    assert [*published(watching)] == [OTHER]
    world.api.fault = lambda _verb, _plural: None
    watching.surveys.publish()
    assert published(watching) == {name: packed(name.encode()) for name in (SURVEYOR, OTHER)}


def test_an_api_server_that_is_away_is_asked_for_one_survey_and_not_for_the_others() -> None:
    world = world_with("infiniband")
    world.label(OTHER, surveys="yes")
    for node in (SURVEYOR, OTHER):
        world.api.create(CONFIGMAPS, survey(node, node.encode()))
    watching = Watching(world)
    watching.observe()
    world.api.calls.clear()
    world.api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
    with pytest.raises(ApiError, match="away"):
        watching.surveys.publish()
    assert len(world.api.calls) == 1, "each survey waits for the timeout of its own request"


def test_surveys_of_the_first_nodes_count_and_others_are_removed() -> None:
    world = World(
        {f"node-{number:03}": {"surveys": "yes"} for number in range(MAX_SURVEYS + 2)}, settings("infiniband")
    )
    for number in range(MAX_SURVEYS + 2):
        world.api.create(CONFIGMAPS, survey(f"node-{number:03}", b"x"))
    watching = Watching(world)
    watching.observe()
    watching.surveys.publish()
    assert sorted(published(watching)) == [f"node-{number:03}" for number in range(MAX_SURVEYS)]
    world.remove("node-000")
    watching.observe()
    watching.surveys.publish()
    assert sorted(published(watching)) == [f"node-{number:03}" for number in range(1, MAX_SURVEYS + 1)]


def test_a_provider_waits_for_its_own_watches_only() -> None:
    watching = Watching(world_with("infiniband"))
    watch = watching.watch
    for reflector in (watch.nodes, watch.fabrics):
        reflector._list()
    assert watch.awaited().startswith("waits for the list of configmaps")
    with pytest.raises(Retry, match="the ConfigMaps with InfiniBand surveys of nodes are not listed yet"):
        watching.surveys.publish()
    watch.surveys._list()
    assert watch.awaited() == ""


@pytest.mark.parametrize(
    ("provider", "waits"),
    [
        ("infiniband", True),
        ("lldp", True),
        ("ufm", True),
        ("acme:Provider", True),
        ("tree-file", False),
    ],
)
def test_those_providers_wait_for_nodefabrics_that_see_them_or_their_guids(provider: str, *, waits: bool) -> None:
    watch = Watching(World({}), provider).watch
    assert (watch.fabrics in watch.wanted) is waits
    for reflector in (watch.nodes, watch.surveys):
        reflector._list()
    assert watch.awaited().startswith("waits for the list of nodefabrics" if waits else "") is True
    assert bool(watch.awaited()) is waits


def test_hypernodes_are_watched_only_where_their_kind_is_installed() -> None:
    world = World({SURVEYOR: {}})
    world.api.served = {("v1", "nodes"), ("gkm.io/v1alpha1", "nodefabrics")}
    watching = Watching(world, "acme:Provider")
    watching.watch.start()
    try:
        until(lambda: watching.watch.awaited() == "", "nothing is awaited")
        assert watching.watch.hypernodes not in watching.watch._started
    finally:
        watching.watch.close(5.0)


def test_infiniband_starts_when_every_chosen_survey_was_fetched_or_is_gone() -> None:
    world = world_with("infiniband")
    gone, late = "node-002", "node-003"
    for node in (SURVEYOR, OTHER, gone, late):
        world.label(node, surveys="" if node == late else "yes")
        world.api.create(CONFIGMAPS, survey(node, node.encode()))
    watching = Watching(world)
    watching.observe()
    feed = watching.surveys
    assert feed.awaited().startswith("waits for 3 surveys")
    faults = [ApiError(503, "", "away"), None, ApiError(404, "NotFound", "gone")]
    world.api.fault = lambda verb, plural: faults.pop(0) if (verb, plural) == ("get", "configmaps") else None
    with pytest.raises(ApiError, match="503: away"):  # the first of the two failures
        feed.publish()
    assert feed.awaited().startswith("waits for 1 survey,")
    world.api.fault = lambda _verb, _plural: None
    feed.publish()
    assert feed.awaited() == ""
    world.label(late, surveys="yes")
    watching.observe()
    assert feed.awaited().startswith("waits for 1 survey,")


def test_a_survey_that_was_gone_when_it_was_fetched_holds_up_nothing() -> None:
    world = world_with("infiniband")
    world.api.create(CONFIGMAPS, survey(SURVEYOR, b"x"))
    watching = Watching(world)
    watching.observe()
    world.api.delete(CONFIGMAPS, survey(SURVEYOR, b"x")["metadata"]["name"], SYSTEM)
    with pytest.raises(ApiError, match=r"configmaps .* not found"):
        watching.surveys.publish()
    assert watching.surveys.awaited() == ""
    world.api.create(CONFIGMAPS, survey(SURVEYOR, b"x"))
    watching.surveys.publish()
    assert [*published(watching)] == [SURVEYOR]


def test_surveys_are_listed_in_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with("infiniband")
    limits: dict[str, int] = {}
    listed = world.api.list_pages

    def list_pages(resource: Resource[Any], selector: ListSelector = EVERYTHING, limit: int = PAGE_LIMIT) -> object:
        limits[resource.plural] = limit
        return listed(resource, selector, limit)

    monkeypatch.setattr(world.api, "list_pages", list_pages)
    Watching(world).observe()
    assert (limits["configmaps"], limits["nodes"]) == (32, 250)


def test_the_state_of_a_port_changes_nothing_that_providers_see() -> None:
    world = world_with("infiniband")
    watching = Watching(world)
    watching.observe()
    before = watching.view.version
    put(world.api, FABRICS, fabric(OTHER, infiniband=ports(OTHER, "DOWN")))
    watching.observe()
    assert watching.view.version == before


def test_a_node_has_its_guids_when_its_nodefabric_comes_while_the_node_is_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World({SURVEYOR: {}}, settings("ufm"))
    put(world.api, FABRICS, fabric(SURVEYOR, infiniband=ports(SURVEYOR)))
    watching = Watching(world, "ufm")
    view = watching.view
    other = Thread(target=watching.watch.fabrics._list)
    publish = view.publish

    def published_late(changed: Iterable[Value], deleted: Iterable[tuple[Kind, str]] = ()) -> None:
        if other.ident is None:
            other.start()
            # Time to publish what it has read, if it can.
            other.join(0.5)
        publish(changed, deleted)

    monkeypatch.setattr(view, "publish", published_late)
    watching.watch.nodes._list()
    other.join()
    (node,) = view.nodes()
    assert set(node.guids) == {port["portGUID"] for port in ports(SURVEYOR)}


def test_the_reduced_nodefabric_is_one_that_the_provider_decodes() -> None:
    world = world_with("lldp")
    watching = Watching(world, "lldp")
    watching.observe()
    for watched in watching.watch.fabrics.values():
        ports, neighbors = (msgspec.json.decode(one, type=NodeFabric) for one in (watched.ports, watched.neighbors))
        assert ports.metadata.name == neighbors.metadata.name == watched.metadata.name
        assert [port.state for port in ports.status.infiniband] == [""] * (NETWORK.rails + 1)
        assert [link.interface for link in neighbors.status.ethernet] == ["eth0"]
