"""A tree as one text: what fits into an object, and what of a forged text is refused."""

import base64
import random
import string
import zlib
from collections.abc import Callable

import pytest
from gkm.api.provider_trees import MAX_PACKED
from gkm.topology import provider_trees
from gkm.topology.hypernodes import HyperNode, Member, MemberKind
from gkm.topology.provider_trees import HyperNodeSet, InvalidTree, TreeTooLarge, pack, unpack
from gkm.topology.providers import Action, Event
from gkm.topology.quarantine import Quarantined, QuarantineReason
from hypothesis import given
from hypothesis import strategies as st

Name = Callable[[int], str]
RNG = random.Random(35)
KINDS: list[MemberKind] = ["Node", "HyperNode"]
MEMBERS = st.builds(Member, st.sampled_from(KINDS), st.text(max_size=20))
HYPERNODES = st.builds(HyperNode, st.text(max_size=20), st.text(max_size=8), st.lists(MEMBERS, max_size=4).map(tuple))
QUARANTINED = st.builds(Quarantined, st.text(max_size=20), st.sampled_from(QuarantineReason), st.text(max_size=20))


def fabric(nodes: int, node: Name, switch: Name) -> list[HyperNode]:
    """Nodes by 20 below leaves, by 32 below spines."""
    leaves = [
        HyperNode(switch(at), "leaf", tuple(Member("Node", node(number)) for number in range(at, at + 20)))
        for at in range(0, nodes, 20)
    ]
    spines = [
        HyperNode(f"spine-{at}", "spine", tuple(Member("HyperNode", leaf.name) for leaf in leaves[at : at + 32]))
        for at in range(0, len(leaves), 32)
    ]
    return [*leaves, *spines]


def anything(_number: int) -> str:
    """A name without any pattern, as long as a label of a Node may be."""
    return "".join(RNG.choices(string.ascii_lowercase + string.digits, k=63))


@pytest.mark.parametrize(
    ("nodes", "node", "switch"),
    [
        (12_500, "gpu-{:05}.cluster.example".format, lambda at: f"{0xE41D2D0300000000 + at * 7919:016x}"),
        (12_500, anything, anything),
        (160_000, "gpu-{:06}".format, "leaf-{:06}".format),
    ],
    ids=["12,500 nodes", "12,500 nodes whose names have no pattern", "160,000 nodes"],
)
def test_a_large_fabric_fits_into_one_object(nodes: int, node: Name, switch: Name) -> None:
    tree = fabric(nodes, node, switch)
    text = pack(tree)
    assert len(text) <= MAX_PACKED
    found = HyperNodeSet()
    found.apply(unpack(text), first=True)
    assert found.hypernodes == {each.name: each for each in tree}


@given(st.lists(HYPERNODES, max_size=5, unique_by=lambda each: each.name), st.lists(QUARANTINED, max_size=3))
def test_whatever_is_packed_is_unpacked_and_its_order_does_not_matter(
    tree: list[HyperNode], quarantined: list[Quarantined]
) -> None:
    text = pack(tree, quarantined)
    assert text == pack(tree[::-1], quarantined[::-1])
    ordered = tuple(sorted(tree, key=lambda each: each.name))
    assert unpack(text) == Event(Action.SNAPSHOT, ordered, (), tuple(sorted(quarantined)))


def test_a_tree_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TreeTooLarge, match=rf"the compressed tree has [0-9]+ characters; {MAX_PACKED} are possible"):
        pack(fabric(30_000, anything, anything))


def test_a_tree_with_more_json_than_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_trees, "MAX_BYTES", 100)
    with pytest.raises(TreeTooLarge, match=r"the tree has [0-9]+ bytes; 100 are possible"):
        pack(fabric(20, anything, anything))


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


GOOD = pack(fabric(20, "n{}".format, "s{}".format))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the packed tree is truncated, or has data after"),
        ("secret-switch", "the packed tree is not compressed by zlib and in base64"),
        ("é" * 8, "the packed tree is not compressed by zlib and in base64"),
        (base64.b64encode(b"secret-switch").decode(), "the packed tree is not compressed by zlib and in base64"),
        (
            base64.b64encode(zlib.compress(b"{}")[:-1] + b"x").decode(),
            "the packed tree is not compressed by zlib and in base64",
        ),
        (base64.b64encode(base64.b64decode(GOOD)[:-6]).decode(), "the packed tree is truncated, or has data after"),
        (base64.b64encode(base64.b64decode(GOOD) + b"x").decode(), "the packed tree is truncated, or has data after"),
        (packed(b"[" * 100_000), "its JSON is no list of HyperNodes"),
        (packed(b'{"hypernodes":[{"name":"secret-switch"}]}'), "its JSON is no list of HyperNodes"),
        (packed(b"\xff"), "its JSON is no list of HyperNodes"),
        (packed(b" " * (provider_trees.MAX_BYTES + 1)), "its JSON has more than 33554432 bytes"),
        (packed(b"[" + b"0," * 1_500_001 + b"0]"), "it has more than 1500000 values"),
        ("A" * (MAX_PACKED + 1), f"it has more than {MAX_PACKED} characters"),
    ],
    ids=[
        "empty",
        "no base64",
        "no ASCII",
        "not compressed",
        "wrong checksum",
        "cut off",
        "with a tail",
        "deep",
        "other fields",
        "no UTF-8",
        "a bomb",
        "many values",
        "long",
    ],
)
def test_a_text_that_is_no_tree_is_refused_without_its_content(text: str, why: str) -> None:
    with pytest.raises(InvalidTree) as caught:
        unpack(text)
    assert str(caught.value).startswith(why)
    assert "secret" not in str(caught.value)
