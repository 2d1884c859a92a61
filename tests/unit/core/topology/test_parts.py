"""Long lists in parts: the result does not depend on where the text is split."""

import json
from itertools import pairwise

import pytest
from gkm.topology import lists
from gkm.topology.lists import ListPart, ListUnreadable, split_list
from hypothesis import given
from hypothesis import strategies as st
from support.topology.kube_lists import Json, node_json

HOSTILE = ['"items": [\n    {', "\n        },\n        {\n", "\n        }\n    ]", "\\", '"', "]}"]


def pretty(items: list[Json], indent: int | None = 4, **around: object) -> bytes:
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List", **around}, indent=indent).encode()


def blocks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def objects(found: list[ListPart]) -> list[Json]:
    read = [json.loads(part.text) if part.objects else json.loads(part.text)["items"] for part in found]
    return [entry for some in read for entry in some]


ITEMS = st.lists(
    st.builds(
        lambda name, text: node_json(name, {"a": text}) | {"nested": {"items": [{"b": text}, {}, []]}},
        st.sampled_from(["n1", "n2"]),
        st.sampled_from(HOSTILE) | st.text(max_size=4),
    ),
    max_size=5,
)


@given(ITEMS, st.sampled_from([None, 1, 2, 4, 8]), st.lists(st.integers(0), max_size=20))
def test_parts_have_the_objects_of_the_list_in_their_order(
    items: list[Json], indent: int | None, cuts: list[int]
) -> None:
    assert objects(list(split_list(blocks(pretty(items, indent), cuts)))) == items


@given(ITEMS, st.sampled_from([None, 4]), st.lists(st.integers(0), max_size=20))
def test_the_same_nodes_are_read_whole_or_in_pieces(items: list[Json], indent: int | None, cuts: list[int]) -> None:
    data = pretty(items, indent)

    assert lists.parse_nodes(blocks(data, cuts)) == lists.parse_nodes([data])


def test_a_long_list_is_never_in_memory_as_a_whole() -> None:
    items = [node_json(f"n{number}") for number in range(1000)]
    data = pretty(items)
    block = 10_000

    found = list(split_list(data[start : start + block] for start in range(0, len(data), block)))

    assert objects(found) == items
    assert max(len(part.text) for part in found) < 2 * block


def test_a_list_of_another_layout_is_one_part() -> None:
    data = pretty([node_json("n1"), node_json("n2")], None)

    assert list(split_list([data[:50], data[50:]])) == [ListPart(data, objects=False)]


NODES = json.dumps({"apiVersion": "v1", "items": [node_json("n1"), node_json("n2")]}, indent=4).encode()


@pytest.mark.parametrize(
    "lying",
    [
        NODES.replace(b'"name": "n2",', b'"a": [{\n        },\n        {\n}], "name": "n2",'),
        NODES.replace(b'"name": "n1",', b'"a": [{\n        },\n        {\n}], "name": "n1",'),
        NODES.replace(b'"name": "n1",', b'"a": [{\n        }\n    ], "name": "n1",'),
        NODES[:-2] + b',\n    "more": [\n        {\n        },\n        {\n            "a": 2\n        }\n    ]\n}',
        NODES.replace(b'"items": [', b'"more": {\n    "items": [\n        {\n        }\n    ]},\n    "items": [', 1),
    ],
)
@given(cuts=st.lists(st.integers(0), max_size=20))
def test_a_misleading_indentation_is_refused_and_never_misread(lying: bytes, cuts: list[int]) -> None:
    assert [entry["metadata"]["name"] for entry in json.loads(lying)["items"]] == ["n1", "n2"]
    try:
        found = lists.parse_nodes(blocks(lying, cuts))
    except ListUnreadable:
        return
    assert [node.name for node in found.nodes] == ["n1", "n2"]
    assert not found.unread


def test_a_nested_list_is_not_mistaken_for_the_list() -> None:
    data = pretty([node_json("n1")]).replace(
        b'"items": [', b'"more": {\n    "items": [\n        {\n        }\n    ]},\n    "items": [', 1
    )

    found = lists.parse_nodes([data])

    assert [node.name for node in found.nodes] == ["n1"]
    assert not found.unread


def test_blocks_may_be_empty() -> None:
    data = pretty([node_json("n1"), node_json("n2")])

    assert (
        lists.parse_nodes([b"", data, b""])
        == lists.parse_nodes([data[:900], b"", data[900:]])
        == lists.parse_nodes([data])
    )


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.8, 0.999])
def test_a_list_that_ends_too_early_is_refused_wherever_it_ends(cut: float) -> None:
    data = pretty([node_json(f"n{number}") for number in range(50)])

    with pytest.raises(ListUnreadable, match="no list of nodes can be read: Input data was truncated"):
        lists.parse_nodes(blocks(data[: int(len(data) * cut)], [1000, 2000]))


def test_the_keys_around_the_objects_count_in_any_position() -> None:
    data = pretty([node_json("n1")]).replace(b'"kind": "List"', b'"kind": "PodList"')

    with pytest.raises(ListUnreadable, match="this is PodList"):
        lists.parse_nodes([data])


def test_an_undecodable_node_is_reported_by_its_number_in_the_whole_list() -> None:
    data = pretty([*(node_json(f"n{number}") for number in range(99)), {"metadata": {"name": ""}}])

    found = lists.parse_nodes(blocks(data, list(range(0, len(data), 500))))

    assert [entry.node for entry in found.unread] == ["items[99]"]
