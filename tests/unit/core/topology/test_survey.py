"""The survey of a whole snapshot."""

from collections.abc import Sequence
from random import Random

import pytest
from gkm.api.topology_settings import Topology
from gkm.topology.nodes import Node
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.survey import survey_nodes
from hypothesis import given
from hypothesis import strategies as st
from support.topology.kube_lists import node

IN_DOMAIN = {"cluster": "a", "fabric.domain": "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"}


def reasons(quarantined: Sequence[Quarantined]) -> list[tuple[str, QuarantineReason]]:
    return [(entry.node, entry.why) for entry in quarantined]


def test_no_nodes_make_an_empty_survey() -> None:
    found = survey_nodes([], Topology())

    assert (found.located, found.bare, found.quarantined) == ((), (), ())


def test_a_located_node_has_location_flavor_and_gpus() -> None:
    (found,) = survey_nodes(
        [node("n1", {"cluster": "a", "fabric.domain": "d1", "gpu.flavor": "H100", "block": "b1"})], Topology()
    ).located

    assert (str(found.location), found.flavor, found.gpus) == ("default/a/b1/d1", "h100", 8)


def test_a_node_without_gpus_is_bare_and_its_labels_do_not_count() -> None:
    nodes = [
        node("cpu", {"rack": "r1", "block": "b2"}, gpus=None),
        node("n1", IN_DOMAIN | {"rack": "r1", "block": "b1"}),
    ]

    found = survey_nodes(nodes, Topology())

    assert found.bare == ("cpu",)
    assert not found.quarantined


@pytest.mark.parametrize("gpus", ["0", None])
def test_a_node_without_a_device_plugin_still_counts_for_contradictions(gpus: object) -> None:
    found = survey_nodes([node("n1", IN_DOMAIN, gpus), node("n2", IN_DOMAIN | {"cluster": "b"})], Topology())

    assert reasons(found.quarantined) == [
        ("n1", QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS),
        ("n2", QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS),
    ]


def test_two_nodes_of_one_name_are_both_quarantined() -> None:
    found = survey_nodes([node("n1"), node("n1", gpus="4"), node("n2")], Topology())

    assert reasons(found.quarantined) == [("n1", QuarantineReason.DUPLICATE_NAME)] * 2
    assert [entry.node.name for entry in found.located] == ["n2"]


def test_a_node_with_the_name_of_an_undecodable_one_is_quarantined_too() -> None:
    found = survey_nodes([node("n1")], Topology(), [Quarantined("n1", QuarantineReason.UNREADABLE, "")])

    assert sorted(why for _, why in reasons(found.quarantined)) == [
        QuarantineReason.DUPLICATE_NAME,
        QuarantineReason.UNREADABLE,
    ]


@pytest.mark.parametrize("gpus", ["NaN", "-8", "1e9", "0.5"])
def test_an_invalid_number_of_gpus_quarantines_the_node_with_its_value(gpus: str) -> None:
    found = survey_nodes([node("n1", gpus=gpus), node("n2")], Topology())

    assert reasons(found.quarantined) == [("n1", QuarantineReason.GPUS_INVALID)]
    assert gpus in found.quarantined[0].message


def test_an_invalid_label_quarantines_the_node() -> None:
    assert reasons(survey_nodes([node("n1", {"rack": "a b"})], Topology()).quarantined) == [
        ("n1", QuarantineReason.LABEL_INVALID)
    ]


def test_the_flavors_of_quarantined_nodes_are_known() -> None:
    nodes = [
        node("n1", IN_DOMAIN | {"gpu.flavor": "H100"}),
        node("n2", IN_DOMAIN | {"cluster": "b"}),
        node("n3", {"gpu.flavor": "H100"}),
    ]

    assert survey_nodes(nodes, Topology()).quarantined_flavors == {"n1": "h100"}


def test_nodes_with_gpus_but_without_a_domain_are_quarantined_if_configured() -> None:
    found = survey_nodes([node("n1"), node("cpu", gpus=None)], Topology(missing_fabric="quarantine"))

    assert reasons(found.quarantined) == [("n1", QuarantineReason.NO_FABRIC_DOMAIN)]
    assert found.bare == ("cpu",)


WORDS = st.sampled_from(["", "x", "y", "a b"])
LABELS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("region", "cluster", "fabric.domain", "block", "rack", "gpu.flavor"), WORDS)
)
NODES = st.lists(
    st.builds(node, st.sampled_from(["n1", "n2", "n3", "n4", "n5"]), LABELS, st.sampled_from([None, "0", "8", "NaN"])),
    max_size=8,
)


@given(NODES, st.sampled_from(["own", "quarantine"]))
def test_every_node_is_in_exactly_one_part_of_the_survey(nodes: list[Node], missing: str) -> None:
    found = survey_nodes(nodes, Topology(missing_fabric=missing))  # type: ignore[arg-type]

    everywhere = [*(entry.node.name for entry in found.located), *found.bare, *(e.node for e in found.quarantined)]
    assert sorted(everywhere) == sorted(entry.name for entry in nodes)


@given(NODES, st.integers())
def test_the_order_of_nodes_does_not_matter(nodes: list[Node], seed: int) -> None:
    assert survey_nodes(Random(seed).sample(nodes, len(nodes)), Topology()) == survey_nodes(nodes, Topology())
