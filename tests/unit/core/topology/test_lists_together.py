"""Lists in the layout of kubectl are decoded many objects at a time, with the results of one by one."""

import json
from typing import Any

import pytest
from gkm.topology import lists
from gkm.topology.lists import ListUnreadable
from hypothesis import given
from hypothesis import strategies as st
from support.topology.kube_lists import container, node_json, pod_json

NODES: list[dict[str, Any]] = [
    node_json("n1", {"fabric.domain": "d1"}),
    node_json("n2", gpus=None, unschedulable=True),
    {"kind": "Node", "metadata": {"name": "n3", "labels": {"a": 5}}},
    {"kind": "Node", "metadata": {"name": "N 4"}},
    {"kind": "Node", "metadata": {}},
]
PODS: list[dict[str, Any]] = [
    pod_json("p1", "n1", container("1")),
    pod_json("p2", "n1", container(["1"])),
    pod_json("p3", "n2", container("2"), phase="Failed"),
]


def as_kubectl(*items: object) -> bytes:
    return (json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}, indent=4) + "\n").encode()


def compact(*items: object) -> bytes:
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}).encode()


@given(st.lists(st.sampled_from(NODES), max_size=8), st.integers(1, 3_000))
def test_nodes_are_the_same_in_either_layout_and_in_pieces_of_any_size(items: list[Any], size: int) -> None:
    text = as_kubectl(*items)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert lists.parse_nodes(pieces) == lists.parse_nodes([compact(*items)])


@given(st.lists(st.sampled_from(PODS), max_size=8))
def test_pods_are_the_same_in_either_layout(items: list[Any]) -> None:
    assert lists.parse_pods([as_kubectl(*items)]) == lists.parse_pods([compact(*items)])


def test_an_object_of_another_kind_is_reported_by_its_number() -> None:
    with pytest.raises(ListUnreadable, match=r"items\[2\] is a Pod, no Node"):
        lists.parse_nodes([as_kubectl(NODES[0], NODES[1], PODS[0])])


def test_too_many_objects_are_too_many_in_either_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_ITEMS", 2)
    for text in (as_kubectl, compact):
        assert len(lists.parse_nodes([text(*NODES[:2])]).nodes) == 2
        with pytest.raises(ListUnreadable, match="more than the 2 items"):
            lists.parse_nodes([text(*NODES[:3])])
