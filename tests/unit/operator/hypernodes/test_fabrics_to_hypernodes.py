"""InfiniBand and LLDP become HyperNodes by way of their real child processes; surveys are those of chosen nodes."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
import yaml
from gkm.api.config import Config, parse
from gkm.api.fabrics import SURVEY_KEY, NodeFabric
from gkm.api.topology_settings import TopologyProvider
from gkm.api.topology_status import ProviderState
from gkm.kube.api import EVERYTHING, PAGE_LIMIT, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, Json, Resource
from gkm.kube.workqueue import Retry
from gkm.topology.hypernodes import Member
from gkm.topology.providers import ClusterNode
from gkm_operator.hypernodes.providers.mailbox import Value
from gkm_operator.hypernodes.providers.messages import Key
from gkm_operator.hypernodes.survey_feed import MAX_SURVEYS
from support.host.waiting import until
from support.operator.nodes import put
from support.operator.topology import SYSTEM, TOPOLOGY, Process, World
from support.topology.infiniband_networks import Cabling, Rails, adapter_guid, cabling, leaf_guid, topology_file
from support.topology.observed import packed

FABRICS: Resource[Json] = Resource("gkm.io/v1alpha1", "NodeFabric", "nodefabrics", namespaced=False, type=Json)
NETWORK = Rails(groups=2, hosts_each=3, rails=2, spines=2)
SURVEYOR, OTHER = "node-000", "node-001"
NODES = {f"node-{number:03}": position for number, position in enumerate(NETWORK.hosts)}
BY_GROUP = [sorted(name for name in NODES if NODES[name][2] == group) for group in range(2)]
LONG = 120.0
DEPLOY = Path(__file__).parents[4] / "deploy"


def settings(provider: str, **topology: object) -> Config:
    chosen = {"ibnetdiscover": {"nodes": [SURVEYOR], "nodeSelector": {"surveys": "yes"}}}
    levels = {"levels": [{"name": "leaf"}, {"name": "spine"}], "providers": [{"name": provider}]}
    return parse(json.dumps({"topology": TOPOLOGY | levels | topology, "fabric": chosen}))


def survey(node: str, text: bytes) -> Json:
    labels = {"gkm.node": node, "app.kubernetes.io/part-of": "gkm"}
    metadata = {"name": f"gkm-ibnetdiscover-{node}", "namespace": SYSTEM, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {SURVEY_KEY: packed(text).decode()}}


def fabric(node: str, **status: object) -> Json:
    head = {"apiVersion": FABRICS.api_version, "kind": "NodeFabric", "metadata": {"name": node}}
    return head | {"spec": {"nodeName": node}, "status": status}


def ports(node: str, state: str = "ACTIVE") -> list[Json]:
    _, pod, group, number = NODES[node]
    return [
        {"device": f"mlx5_{rail}", "port": 1, "portGUID": adapter_guid(pod, group, number, rail), "state": state}
        for rail in range(NETWORK.rails + 1)  # the last port has no cable
    ]


def world_with(provider: str, **topology: object) -> World:
    world = World({name: {} for name in NODES}, settings(provider, **topology))
    for name in NODES:
        neighbors = [{"interface": "eth0", "neighbour": {"chassisID": f"leaf-{NODES[name][2]}", "portID": "1"}}]
        put(world.api, FABRICS, fabric(name, infiniband=ports(name), ethernet=neighbors))
    return world


def groups(world: World) -> list[list[str]]:
    """The nodes of each leaf group."""
    found = world.api.hypernodes().values()
    return sorted([member.name for member in one.members] for one in found if one.tier_name == "leaf")


def until_it(process: Process, probe: Callable[[], object], what: str) -> None:
    """Let a process act until something is true."""

    def acted() -> bool:
        process.observe()
        if process.controller.watcher.surveys.synced.is_set():
            process.controller.surveys.publish()
        process.work()
        return bool(probe())

    until(acted, what, LONG)


@contextmanager
def running(world: World) -> Iterator[Process]:
    """A process with its children."""
    process = world.process()
    process.observe()
    process.controller._host.start()
    try:
        yield process
    finally:
        process.controller._host.stop()


def until_groups(world: World, process: Process, wanted: list[list[str]]) -> None:
    until_it(process, lambda: groups(world) == wanted, f"the groups {wanted}")


def test_a_survey_of_a_chosen_node_becomes_leaf_groups_by_the_guids_of_nodes() -> None:
    world = world_with("infiniband")
    world.api.create(CONFIGMAPS, survey(OTHER, topology_file(cabling(NETWORK))))
    with running(world) as process:
        source = process.controller.sources[0]
        until_it(process, lambda: source.report().reason, "the provider waits")
        assert source.report().reason.startswith("waits for a survey of a node")
        assert world.api.hypernodes() == {}
        assert "waits for infiniband" in process.condition("ProvidersServing")["message"]
        world.label(OTHER, surveys="yes")
        until_groups(world, process, BY_GROUP)
        world.remove(SURVEYOR)
        until_groups(world, process, [[name for name in names if name != SURVEYOR] for names in BY_GROUP])
        assert source.report().restarts == 0
    assert world.api.violations == []


def test_neighbors_become_leaf_groups() -> None:
    world = world_with("lldp")
    with running(world) as process:
        until_groups(world, process, BY_GROUP)
        moved = [{"interface": "eth0", "neighbour": {"chassisID": "leaf-1", "portID": "1"}}]
        put(world.api, FABRICS, fabric(SURVEYOR, infiniband=ports(SURVEYOR), ethernet=moved))
        until_groups(world, process, [sorted([SURVEYOR, *BY_GROUP[1]]), BY_GROUP[0][1:]])


def test_a_survey_that_becomes_unreadable_leaves_the_tree_and_is_reported_without_its_content() -> None:
    world = world_with("infiniband")
    world.api.create(CONFIGMAPS, survey(SURVEYOR, topology_file(cabling(NETWORK))))
    with running(world) as process:
        until_groups(world, process, BY_GROUP)
        before = world.api.hypernodes()
        put(world.api, CONFIGMAPS, survey(SURVEYOR, b"# secret-switch\n"))
        source = process.controller.sources[0]
        until_it(process, lambda: source.report().faults, "a fault")
        (fault,) = source.report().faults
        assert source.report().state is ProviderState.SERVING
    assert "names no switch" in fault
    assert "secret-switch" not in fault
    assert world.api.hypernodes() == before


@pytest.mark.parametrize(
    "written",
    [
        {"hyperNodes": {"enabled": True}},
        {"hyperNodes": {"enabled": True, "hashNames": True}},
        {"hyperNodes": {"enabled": False}, "nodeLabels": True},
        {"hyperNodes": {"enabled": False, "hashNames": True}, "nodeLabels": True},
    ],
    ids=["names", "hashed names", "labels", "hashed labels"],
)
def test_a_new_switch_renames_no_group_after_a_restart(written: dict[str, object]) -> None:
    world = world_with("infiniband", levels=[{"name": "leaf"}], **written)
    network = cabling(NETWORK)

    def seen() -> list[object]:
        return [*world.api.hypernodes(), *(world.levels(name) for name in NODES)]

    world.api.create(CONFIGMAPS, survey(SURVEYOR, topology_file(network)))
    with running(world) as process:
        until_it(process, lambda: any(seen()), "names")
        before = seen()
    put(world.api, CONFIGMAPS, survey(SURVEYOR, topology_file(with_smaller_leaf(network))))
    with running(world) as process:
        until_it(process, lambda: process.controller.tree.state.approved, "a tree")
        assert seen() == before
    hashed = "hashNames" in str(written["hyperNodes"])
    assert (leaf_guid(0, 0, 0) in str(before)) is not hashed


def with_smaller_leaf(network: Cabling) -> Cabling:
    """The network with one more rail in the first group, whose leaf has the smallest GUID of all."""
    new = "0000000000000001"
    network.switches[new] = "MF0;new:MQM9701/U1"
    for name, pod, group, number in NETWORK.hosts:
        if group == 0:
            guid = adapter_guid(pod, group, number, NETWORK.rails)
            network.descriptions[guid] = f"{name} mlx5_{NETWORK.rails}"
            network.plugged.append((guid, new))
    return network


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
    with pytest.raises(ApiError):
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
    watcher._started = [*watcher.wanted]
    for reflector in (watcher.nodes, watcher.fabrics):
        reflector._list()
    assert watcher.synced
    assert watcher.awaited("labels") == ""
    assert watcher.awaited("infiniband").startswith("waits for the list of configmaps")
    with pytest.raises(Retry):
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
        ("netq", False),
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
    with pytest.raises(ApiError):
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
    with pytest.raises(ApiError):
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


def test_a_provider_is_read_at_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = world_with("lldp").process().controller
    readings = iter([False])
    monkeypatch.setattr(controller.sources[0], "refresh", lambda: next(readings))
    assert controller._handle("provider/lldp") is None
    rest = controller._handle("provider/lldp")
    assert rest is not None
    assert rest > 0


def test_the_limit_of_the_container_is_the_sum_of_the_controllers_and_infiniband() -> None:
    def limit(path: str, name: str) -> int:
        documents = [one for one in yaml.safe_load_all((DEPLOY / path).read_text()) if one["kind"] == "Deployment"]
        (found,) = [one for one in documents if one["metadata"]["name"] == name]
        (container,) = found["spec"]["template"]["spec"]["containers"]
        number, unit = container["resources"]["limits"]["memory"][:-2], container["resources"]["limits"]["memory"][-2:]
        return int(number) << {"Mi": 20, "Gi": 30}[unit]

    controllers = limit("base/controllers.yaml", "gkm-controllers")
    assert (
        limit("components/topology/memory.yaml", "gkm-controllers")
        == controllers + TopologyProvider("infiniband").memory
    )


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
