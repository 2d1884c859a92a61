"""Equal values of many nodes are stored once, and unused fields not at all; the values do not change."""

import json

from gkm.topology import lists
from gkm.topology.nodes import Node, NodeCondition
from hypothesis import given
from hypothesis import strategies as st
from support.topology.kube_lists import listed, node, node_json

TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}
SINCE = "2026-11-01T00:00:00Z"
STATUSES = st.sampled_from(["True", "False", "Unknown"])
CONDITIONS = st.permutations(["Ready", "NVLinkFabricHealthy", "DiskPressure", "XidErrors"]).flatmap(
    lambda kinds: st.lists(STATUSES, max_size=len(kinds)).map(lambda statuses: list(zip(kinds, statuses, strict=False)))
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
def test_only_readiness_and_the_condition_of_gkm_are_stored(said: list[tuple[str, str]]) -> None:
    """The time since which a node is ready has another value for each node, and no reader."""
    document = node_json("n1")
    more = {"reason": "Why", "message": "because", "lastTransitionTime": SINCE}
    document["status"]["conditions"] = [{"type": kind, "status": status} | more for kind, status in said]
    (found,) = lists.parse_nodes([json.dumps(document).encode()]).nodes
    statuses = dict(said)
    ready, fabric = statuses.get("Ready"), statuses.get("NVLinkFabricHealthy")
    wanted = [NodeCondition("Ready", ready, "", "", None if ready == "True" else SINCE)] if ready else []
    wanted += [NodeCondition("NVLinkFabricHealthy", fabric, "Why", "because", SINCE)] if fabric else []
    assert list(found.status.conditions or ()) == wanted
    assert found.ready == (ready == "True")
