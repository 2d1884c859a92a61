"""Equal values of many nodes are stored once, and unused fields not at all; the values do not change."""

import json

from gkm.topology import lists
from gkm.topology.nodes import Node, NodeCondition
from hypothesis import given
from hypothesis import strategies as st
from support.topology.kube_lists import listed, node, node_json

TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}
CONDITIONS = st.lists(
    st.tuples(st.sampled_from(["Ready", "DiskPressure"]), st.sampled_from(["True", "False", "Unknown"]))
)


def two() -> tuple[Node, Node]:
    """Return two nodes that say the same, each read from text of its own."""
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{number}": "true" for number in range(40)}
    texts = (listed(node_json(name, labels, taints=[TAINT])) for name in ("n1", "n2"))
    one, other = (lists.parse_nodes([text]).nodes[0] for text in texts)
    return one, other


def test_equal_values_of_two_nodes_are_stored_once() -> None:
    one, other = two()
    assert len(one.labels) == 40
    assert all(key is same for key, same in zip(one.labels, other.labels, strict=True))
    assert all(value is same for value, same in zip(one.labels.values(), other.labels.values(), strict=True))
    assert one.spec.taints is other.spec.taints
    assert one.status.allocatable is other.status.allocatable
    assert one.status.conditions is other.status.conditions


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20)))
def test_labels_keep_values_and_order(labels: dict[str, str]) -> None:
    found = node("n1", labels)
    assert list(found.labels.items()) == list(labels.items())


@given(CONDITIONS)
def test_only_the_first_ready_condition_is_stored(said: list[tuple[str, str]]) -> None:
    document = node_json("n1")
    document["status"]["conditions"] = [{"type": kind, "status": status} for kind, status in said]
    (found,) = lists.parse_nodes([json.dumps(document).encode()]).nodes
    first = [NodeCondition(kind, status) for kind, status in said if kind == "Ready"][:1]
    assert list(found.status.conditions or ()) == first
    assert found.ready == (first == [NodeCondition("Ready", "True")])
