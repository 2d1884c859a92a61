"""Nodes and pods from lists of untrusted origin."""

import json
from typing import Any

import pytest
from gkm.topology import lists
from gkm.topology.lists import ListUnreadable
from gkm.topology.quarantine import QuarantineReason
from hypothesis import given
from hypothesis import strategies as st
from support.topology.kube_lists import container, listed, node_json, pod_json


@pytest.mark.parametrize("kind", ["List", "NodeList", ""])
def test_kubectl_and_the_api_are_both_understood(kind: str) -> None:
    items = [{key: value for key, value in node_json("n1").items() if kind == "List" or key != "kind"}]
    found = lists.parse_nodes([json.dumps({"kind": kind, "items": items}).encode()])

    assert [node.name for node in found.nodes] == ["n1"]


def test_one_object_alone_is_a_list_of_one() -> None:
    assert [node.name for node in lists.parse_nodes([json.dumps(node_json("n1")).encode()]).nodes] == ["n1"]
    assert len(lists.parse_pods([json.dumps(pod_json("p1", "n1")).encode()]).pods) == 1


@pytest.mark.parametrize("text", ['{"kind": "List", "items": []}', '{"kind": "NodeList", "items": null}'])
def test_a_list_may_be_empty(text: str) -> None:
    assert lists.parse_nodes([text.encode()]) == lists.NodeList(())


def test_null_means_absent() -> None:
    empty = node_json("n1") | {"spec": {"taints": None}, "status": {"allocatable": None, "conditions": None}}
    empty["metadata"]["labels"] = None

    (found,) = lists.parse_nodes([listed(empty)]).nodes
    assert (dict(found.labels), found.taints, found.gpus, found.ready) == ({}, (), None, False)


WRONG: list[dict[str, Any]] = [
    {"metadata": {"name": "n2", "labels": {"a": 5}}},
    {"metadata": {"name": "n2", "labels": ["a"]}},
    {"metadata": {"name": "n2", "labels": {"a": "x" * 10_000}}},
    {"metadata": {"name": "n2"}, "spec": {"unschedulable": "no"}},
    {"metadata": {"name": "n2"}, "spec": {"taints": [{}]}},
    {"metadata": {"name": "n2"}, "status": {"allocatable": {"nvidia.com/gpu": ["8"]}}},
    {"metadata": {"name": "n2"}, "status": {"allocatable": {"nvidia.com/gpu": True}}},
    {"metadata": {"name": "n2"}, "status": {"conditions": [{"type": "Ready", "status": True}]}},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_an_undecodable_node_is_quarantined_by_name_and_hides_no_other(wrong: object) -> None:
    found = lists.parse_nodes([listed(node_json("n1"), wrong, node_json("n3"))])

    assert [node.name for node in found.nodes] == ["n1", "n3"]
    assert [(entry.node, entry.why) for entry in found.unread] == [("n2", QuarantineReason.UNREADABLE)]
    assert "$." in found.unread[0].message


@pytest.mark.parametrize("wrong", [5, None, [], "n2", {}, {"metadata": {}}, {"metadata": {"name": 7}}])
def test_a_node_without_a_name_is_reported_by_its_number(wrong: object) -> None:
    found = lists.parse_nodes([listed(node_json("n1"), wrong)])

    assert [entry.node for entry in found.unread] == ["items[1]"]


@pytest.mark.parametrize("name", ["A", "a b", "a\n", "a/b", "../x", "\x1b[31m", "é", "x" * 300])
def test_an_invalid_node_name_is_quarantined_on_one_short_line(name: str) -> None:
    (entry,) = lists.parse_nodes([listed(node_json(name))]).unread

    assert entry.node.isascii()
    assert entry.node.isprintable()
    assert len(entry.node) < 700


def test_an_undecodable_pod_is_a_fault_of_its_node() -> None:
    wrong = pod_json("p2", "n2") | {"status": {"phase": 3}}
    found = lists.parse_pods([listed(pod_json("p1", "n1"), wrong)])

    assert len(found.pods) == 1
    assert [node for node, _ in found.unread] == ["n2"]


def test_a_pod_with_an_undecodable_node_name_makes_the_list_unreadable() -> None:
    with pytest.raises(ListUnreadable, match=r"items\[1\] is a pod that cannot be read"):
        lists.parse_pods([listed(pod_json("p1", "n1"), {"spec": {"nodeName": 5}})])


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"5", b"[]", b"{}", b'{"a": 1}', b"{", b'{"items": 5}', b"items: []", b"\xff\xfe", b"[" * 100_000],
)
def test_a_text_that_is_no_list_is_refused_with_the_expected_input(data: bytes) -> None:
    with pytest.raises(ListUnreadable, match=r"give what `kubectl get nodes -o json` prints"):
        lists.parse_nodes([data])


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ListUnreadable, match="no list of nodes can be read: 'utf-8' codec can't decode"):
        lists.parse_nodes([listed(node_json("n1", {"a": "X"})).replace(b"X", b"\xff")])


@pytest.mark.parametrize("kind", ["PodList", "Status", "Pod", "\x1b[31m"])
def test_another_list_is_refused_by_its_kind(kind: str) -> None:
    with pytest.raises(ListUnreadable) as caught:
        lists.parse_nodes([json.dumps({"kind": kind, "items": []}).encode()])

    assert ascii(kind)[1:-1] in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("odd", ["\x00", "\u202e", "\U000e0041", "\x1b"])
def test_a_kind_of_any_characters_makes_a_line_of_bounded_length(odd: str) -> None:
    """Found by fuzzing: each character of a kind came out as up to ten."""
    for text in ({"kind": odd * 200, "items": []}, {"items": [{"kind": odd * 200, "metadata": {"name": "n"}}]}):
        with pytest.raises(ListUnreadable) as caught:
            lists.parse_nodes([json.dumps(text).encode()])
        assert len(str(caught.value)) < 300


def test_pods_given_for_nodes_are_refused_and_nodes_given_for_pods() -> None:
    with pytest.raises(ListUnreadable, match=r"items\[0\] is a Pod, no Node"):
        lists.parse_nodes([listed(pod_json("p1", "n1"))])
    with pytest.raises(ListUnreadable, match=r"items\[0\] is a Node, no Pod"):
        lists.parse_pods([listed(node_json("n1"))])


def test_a_list_beyond_the_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = listed(node_json("n1"), node_json("n2"))

    monkeypatch.setattr(lists, "MAX_ITEMS", 1)
    with pytest.raises(ListUnreadable, match="more than the 1 items"):
        lists.parse_nodes([data])
    monkeypatch.setattr(lists, "MAX_BYTES", 10)
    with pytest.raises(ListUnreadable, match="more than the 10 bytes"):
        lists.parse_nodes([data])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["kind", "metadata", "spec", "status"]), JSON), JSON)
def test_any_json_is_decoded_or_refused(changes: dict[str, object], item: object) -> None:
    data = listed(node_json("n1") | changes, item, pod_json("p1", "n1", container(1)) | changes)
    for read in (lists.parse_nodes, lists.parse_pods):
        try:
            read([data])
        except ListUnreadable as error:
            assert str(error).isprintable()
