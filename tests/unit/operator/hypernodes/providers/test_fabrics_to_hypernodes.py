"""InfiniBand and LLDP become HyperNodes by way of the pods of their providers; surveys are those of chosen nodes."""

import pytest
from gkm.api.topology_status import ProviderState
from gkm.kube.resources import CONFIGMAPS
from support.operator.fabric_worlds import (
    BY_GROUP,
    FABRICS,
    NETWORK,
    NODES,
    OTHER,
    SURVEYOR,
    fabric,
    ports,
    running,
    survey,
    until_groups,
    until_it,
    world_with,
)
from support.operator.nodes import put
from support.topology.infiniband_networks import Cabling, adapter_guid, cabling, leaf_guid, topology_file


def test_a_survey_of_a_chosen_node_becomes_leaf_groups_by_the_guids_of_nodes() -> None:
    world = world_with("infiniband")
    world.api.create(CONFIGMAPS, survey(OTHER, topology_file(cabling(NETWORK))))
    with running(world) as process:
        source = process.controller.sources[0]
        waits = "waits for a survey of a node"
        until_it(process, lambda: source.report().reason.startswith(waits), "the provider waits")
        assert world.api.hypernodes() == {}
        assert "waits for infiniband" in process.condition("ProvidersServing")["message"]
        world.label(OTHER, surveys="yes")
        until_groups(world, process, BY_GROUP)
        world.remove(SURVEYOR)
        until_groups(world, process, [[name for name in names if name != SURVEYOR] for names in BY_GROUP])
        assert source.report().state is ProviderState.SERVING
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


def test_a_provider_is_read_at_a_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = world_with("lldp").process().controller
    readings = iter([False])
    monkeypatch.setattr(controller.sources[0], "refresh", lambda: next(readings))
    assert controller._handle("provider/lldp") is None
    rest = controller._handle("provider/lldp")
    assert rest is not None
    assert rest > 0
