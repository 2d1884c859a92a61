"""The provider `lldp`: neighbors of chosen interfaces, from the NodeFabrics of Nodes."""

import pytest
from gkm.topology.providers import ClusterNode, Event, ProviderFailed
from gkm_operator.hypernodes.providers import lldp
from gkm_operator.hypernodes.providers.view import Value
from support.topology.observed import neighbors
from support.topology.provider_run import ProviderRun

NODES = ("n1", "n2", "n3", "n4")
VALUES: tuple[Value, ...] = (
    *map(ClusterNode, NODES),
    neighbors("n1", ens1="leaf-a", eno1="management"),
    neighbors("n2", ens1="leaf-a", eno1="management"),
    neighbors("n3", ens1="leaf-b", eno1="management"),
    neighbors("n4", ens1="leaf-b", eno1="management"),
    neighbors("no-node", ens1="leaf-b"),
)


def first(config: dict[str, object]) -> Event:
    run = ProviderRun(lldp.provider(config, {}))
    run.view.publish(VALUES)
    with run.running():
        return run.next()


def groups(event: Event) -> dict[str, list[str]]:
    return {one.name: [member.name for member in one.members] for one in event.hypernodes}


def test_cables_of_chosen_interfaces_count() -> None:
    assert groups(first({"interfaces": ["ens*"]})) == {"leaf-a": ["n1", "n2"], "leaf-b": ["n3", "n4"]}


def test_nodes_with_as_many_cables_to_several_groups_are_quarantined() -> None:
    event = first({})
    assert event.hypernodes == ()
    assert [one.node for one in event.quarantined] == [*NODES]


@pytest.mark.parametrize("config", [{"interfaces": "ens*"}, {"interfaces": []}, {"interface": ["ens*"]}])
def test_a_config_of_another_shape_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(ProviderFailed, match="has an invalid config"):
        lldp.provider(config, {})
