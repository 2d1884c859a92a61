"""Leaf groups in networks of many shapes, from the text of ibnetdiscover on, and what a wrong cable may change."""

from collections.abc import Mapping
from dataclasses import replace

from gkm.topology.fabrics.network import FabricDiscovery
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.topology.infiniband_networks import Cabling, Rails, cabling, leaf_guid, topology_file
from support.topology.surveys import discover

Places = Mapping[str, tuple[str, ...]]

NETWORKS = st.builds(
    Rails,
    pods=st.integers(1, 2),
    groups=st.integers(2, 4),
    hosts_each=st.integers(3, 5),
    rails=st.integers(1, 4),
    spines=st.integers(1, 3),
    cores=st.sampled_from([0, 2, 3]),
    adapters=st.integers(4, 5),
    seed=st.integers(0, 99),
)
"""Rail-optimised ones, classic fat trees (one rail) and pairs of leaves (two), with two or three levels."""


def discovered(made: Cabling, network: Rails, existing: tuple[str, ...] = ()) -> FabricDiscovery:
    return discover([topology_file(made)], [], [name for name, *_ in network.hosts], existing)


def places(found: FabricDiscovery) -> Places:
    """Return for each node the names of its domains, from the closest to the widest."""
    parents = {member.name: hypernode.name for hypernode in found.hypernodes for member in hypernode.members}
    nodes = [member.name for each in found.hypernodes for member in each.members if member.kind == "Node"]
    assert len(nodes) == len(set(nodes))
    result = {}
    for node in nodes:
        path = [node]
        while path[-1] in parents:
            path.append(parents[path[-1]])
        result[node] = tuple(path[1:])
    return result


def neighbors(found: FabricDiscovery) -> Mapping[str, list[frozenset[str]]]:
    """Return for each node the nodes in each of its domains, from the closest to the widest.

    A switch with a wrong cable may be a switch of another level, so a group that it gave its name has another name.
    """
    its = places(found)
    inside: dict[tuple[int, str], set[str]] = {}
    for node, path in its.items():
        for level, name in enumerate(path):
            inside.setdefault((level, name), set()).add(node)
    return {node: [frozenset(inside[each]) for each in enumerate(path)] for node, path in its.items()}


@given(NETWORKS)
def test_every_host_lies_in_the_group_of_its_leaves(network: Rails) -> None:
    found = discovered(cabling(network), network)
    assert {node: path[0] for node, path in places(found).items()} == {
        name: leaf_guid(pod, group, 0) for name, pod, group, _ in network.hosts
    }
    assert (found.quarantined, found.faults) == ((), ())
    tiers = {hypernode.tier_name for hypernode in found.hypernodes}
    assert tiers == {"leaf", "spine", *(["core"] if network.pods > 1 and network.cores else [])}


@given(NETWORKS)
def test_a_spine_group_holds_the_groups_of_its_pod_and_the_core_all_pods(network: Rails) -> None:
    found = places(discovered(cabling(network), network))
    pods = {pod: {found[name][1] for name, its, *_ in network.hosts if its == pod} for pod in range(network.pods)}
    assert all(len(spines) == 1 for spines in pods.values())
    assert len(set().union(*pods.values())) == network.pods
    assert len({path[2:] for path in found.values()}) == 1


@given(NETWORKS, st.data())
def test_one_wrong_cable_of_a_host_moves_no_host(network: Rails, data: st.DataObject) -> None:
    right = cabling(network)
    adapter, _ = data.draw(st.sampled_from(right.plugged))
    switch = data.draw(st.sampled_from(list(right.switches)))
    wrong = replace(
        right,
        plugged=[*right.plugged, ("e09dffffffffffff", switch)],
        descriptions={**right.descriptions, "e09dffffffffffff": right.descriptions[adapter]},
    )
    assert neighbors(discovered(wrong, network)) == neighbors(discovered(right, network))


@given(NETWORKS, st.data())
def test_one_cable_in_the_wrong_switch_moves_no_host(network: Rails, data: st.DataObject) -> None:
    right = cabling(network)
    index = data.draw(st.integers(0, len(right.plugged) - 1))
    switch = data.draw(st.sampled_from(list(right.switches)))
    plugged = [*right.plugged]
    plugged[index] = (plugged[index][0], switch)
    assert neighbors(discovered(replace(right, plugged=plugged), network)) == neighbors(discovered(right, network))


@given(NETWORKS, st.data())
def test_one_missing_cable_changes_nothing(network: Rails, data: st.DataObject) -> None:
    right = cabling(network)
    index = data.draw(st.integers(0, len(right.plugged) - 1))
    missing = replace(right, plugged=right.plugged[:index] + right.plugged[index + 1 :])
    assert discovered(missing, network) == discovered(right, network)


@given(NETWORKS, st.data())
def test_one_wrong_cable_between_switches_moves_no_host(network: Rails, data: st.DataObject) -> None:
    assume(network.rails * network.spines > 1)  # otherwise a leaf has as many wrong cables as right ones
    right = cabling(network)
    switches = st.sampled_from(list(right.switches))
    first, second = data.draw(st.tuples(switches, switches).filter(lambda pair: pair[0] != pair[1]))
    wrong = replace(right, links=[*right.links, (first, second)])
    assert neighbors(discovered(wrong, network)) == neighbors(discovered(right, network))


@given(NETWORKS, st.data())
def test_a_host_on_a_spine_is_no_leaf(network: Rails, data: st.DataObject) -> None:
    right = cabling(network)
    spines = [guid for guid, name in right.switches.items() if "spine" in name]
    manager = "e09dfffffffffff0"
    wrong = replace(
        right,
        plugged=[*right.plugged, (manager, data.draw(st.sampled_from(spines)))],
        descriptions={**right.descriptions, manager: "ufm-01 mlx5_0"},
    )
    found = discovered(wrong, network)
    assert found.hosts is not None
    assert found.hosts.examples == ("ufm-01",)
    assert replace(found, hosts=None) == replace(discovered(right, network), hosts=None)


@given(NETWORKS, st.booleans())
def test_a_new_switch_renames_nothing(network: Rails, rail: bool) -> None:  # noqa: FBT001 -- hypothesis passes it
    right = cabling(network)
    before = discovered(right, network)
    new = "0000000000000001"
    leaves = [guid for guid, name in right.switches.items() if "leaf-00-" in name]
    more = replace(right, switches={new: "MF0;new:MQM9701/U1", **right.switches})
    if rail:
        of_group = [name for name, pod, group, _ in network.hosts if (pod, group) == (0, 0)]
        guids = {f"e09dfffffff{number:05x}": f"{name} mlx5_9" for number, name in enumerate(of_group)}
        more.descriptions = {**more.descriptions, **guids}
        more.plugged = [*more.plugged, *((guid, new) for guid in guids)]
    else:
        more.links = [*more.links, *((leaf, new) for leaf in leaves)]
    names = tuple(hypernode.name for hypernode in before.hypernodes)
    assert discovered(more, network, names) == before
    renamed = {hypernode.name for hypernode in discovered(more, network).hypernodes}
    assert new in renamed


@given(NETWORKS, st.integers(0, 99))
def test_the_order_of_the_text_does_not_matter(network: Rails, seed: int) -> None:
    made = cabling(network)
    other = replace(made, seed=seed, plugged=made.plugged[::-1], links=made.links[::-1])
    assert discovered(other, network) == discovered(made, network)


@settings(max_examples=examples(20))
@given(NETWORKS)
def test_a_leaf_of_foreign_hosts_is_no_spine(network: Rails) -> None:
    made = cabling(network)
    nodes = [name for name, pod, group, _ in network.hosts if (pod, group) == (0, 0)]
    found = discover([topology_file(made)], [], nodes)
    assert [hypernode.name for hypernode in found.hypernodes] == [leaf_guid(0, 0, 0)]


@given(NETWORKS)
def test_as_many_wrong_cables_as_right_ones_quarantine_the_node_and_no_other(network: Rails) -> None:
    right = cabling(network)
    victim = next(iter(network.hosts))[0]
    plugged, descriptions = [*right.plugged], {**right.descriptions}
    for adapter in range(network.adapters):
        guid = f"e09dfffffffffff{adapter:01x}"
        descriptions[guid] = f"{victim} mlx5_{adapter + 9}"
        plugged.append((guid, leaf_guid(0, 1, adapter % network.rails)))
    found = discovered(replace(right, plugged=plugged, descriptions=descriptions), network)
    assert [each.node for each in found.quarantined] == [victim]
    before = places(discovered(right, network))
    assert places(found) == {node: path for node, path in before.items() if node != victim}
