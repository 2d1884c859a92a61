"""Events of a provider: refused as a whole with a reply, or applied; then the set is a forest within its bounds."""

from collections.abc import Callable

import pytest
from gkm.topology import provider_trees
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.provider_trees import HyperNodeSet, Refused
from gkm.topology.providers import Action, Event
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.examples import examples


def node(name: str) -> Member:
    return Member("Node", name)


def inner(name: str) -> Member:
    return Member("HyperNode", name)


def hypernode(name: str, *members: Member, tier_name: str = "block", tier: int = 0) -> HyperNode:
    return HyperNode(name, tier_name, members, tier)


def event(action: Action, *hypernodes: HyperNode) -> Event:
    return Event(action, hypernodes)


def a_set(*hypernodes: HyperNode) -> HyperNodeSet:
    made = HyperNodeSet()
    made.apply(event(Action.SNAPSHOT, *hypernodes))
    return made


LEAF_A, LEAF_B = hypernode("a", node("n1"), node("n2")), hypernode("b", node("n3"))
SPINE = hypernode("spine", inner("a"), inner("b"))
TREE = (LEAF_A, LEAF_B, SPINE)


@pytest.mark.parametrize("action", [Action.CREATE, Action.UPDATE])
def test_create_and_update_both_set_a_hypernode(action: Action) -> None:
    made = a_set(*TREE)
    new, other = hypernode("c", node("n9")), hypernode("b", node("n4"), node("n3"))
    made.apply(event(action, new))
    made.apply(event(action, other))
    assert made.hypernodes == {"a": LEAF_A, "b": other, "spine": SPINE, "c": new}


def test_a_snapshot_replaces_everything() -> None:
    made = a_set(*TREE)
    made.apply(event(Action.SNAPSHOT, hypernode("z", node("n1"))))
    assert set(made.hypernodes) == {"z"}
    made.apply(event(Action.SNAPSHOT))
    assert made.hypernodes == {}


def test_a_delete_takes_only_the_name_and_frees_the_members() -> None:
    made = a_set(*TREE)
    made.apply(event(Action.DELETE, hypernode("spine")))
    made.apply(event(Action.DELETE, hypernode("a"), hypernode("never was")))
    made.apply(event(Action.CREATE, hypernode("c", node("n1"), inner("b"))))
    assert set(made.hypernodes) == {"b", "c"}


def test_one_event_moves_a_node() -> None:
    made = a_set(*TREE)
    made.apply(event(Action.UPDATE, hypernode("b", node("n3"), node("n2")), hypernode("a", node("n1"))))
    assert made.hypernodes["b"].members == (node("n3"), node("n2"))


def test_two_events_move_a_node_if_the_removal_is_first() -> None:
    made = a_set(*TREE)
    move_in, move_out = hypernode("b", node("n3"), node("n2")), hypernode("a", node("n1"))
    with pytest.raises(Refused, match="two parents"):
        made.apply(event(Action.UPDATE, move_in))
    made.apply(event(Action.UPDATE, move_out))
    made.apply(event(Action.UPDATE, move_in))
    assert made.hypernodes["b"] == move_in


@pytest.mark.parametrize(
    ("refused", "kind"),
    [
        (event(Action.CREATE, hypernode("", node("n9"))), "an illegal name"),
        (event(Action.CREATE, hypernode("a\nb", node("n9"))), "an illegal name"),
        (event(Action.CREATE, hypernode("x" * 254, node("n9"))), "an illegal name"),
        (event(Action.CREATE, hypernode("a\u202eb", node("n9"))), "an illegal name"),
        (event(Action.CREATE, hypernode(" a", node("n9"))), "an illegal name"),
        (event(Action.DELETE, hypernode("a\n")), "an illegal name"),
        (event(Action.CREATE, hypernode("c", node("n9"), tier_name="")), "an illegal tier name"),
        (event(Action.CREATE, hypernode("c", node("n9"), tier_name="a/b")), "an illegal tier name"),
        (event(Action.CREATE, hypernode("c", node("n9"), tier_name="t" * 64)), "an illegal tier name"),
        (event(Action.CREATE, hypernode("c", node("n9"), tier=-1)), "an illegal tier"),
        (event(Action.CREATE, hypernode("c", node("n9"), tier=10**30)), "an illegal tier"),
        (event(Action.CREATE, hypernode("c", node("GPU_1"))), "an illegal name of a Node"),
        (event(Action.CREATE, hypernode("c", node("n1\n"))), "an illegal name of a Node"),
        (event(Action.CREATE, hypernode("c", inner(""))), "an illegal name of a HyperNode"),
        (event(Action.CREATE, hypernode("c", node("n9"), node("n9"))), "a HyperNode has a member twice"),
        (
            event(Action.CREATE, hypernode("c", node("n9")), hypernode("c", node("n8"))),
            "an event has a HyperNode twice",
        ),
        (event(Action.CREATE, hypernode("c", node("n9")), hypernode("d", node("n9"))), "a member has two parents"),
        (event(Action.CREATE, hypernode("c", node("n1"))), "a member has two parents"),
        (event(Action.CREATE, hypernode("c", inner("a"))), "a member has two parents"),
        (event(Action.CREATE, hypernode("c", inner("none"))), "a member does not exist"),
        (event(Action.SNAPSHOT, hypernode("c", inner("a"))), "a member does not exist"),
        (event(Action.DELETE, hypernode("a")), "a deleted HyperNode is still a member"),
        (event(Action.UPDATE, hypernode("a", inner("a"))), "a member has two parents"),
        (event(Action.UPDATE, hypernode("spine", inner("spine"))), "a HyperNode contains itself"),
        (event(Action.UPDATE, hypernode("a", inner("spine"))), "a HyperNode contains itself"),
        (
            event(Action.UPDATE, hypernode("a", inner("c")), hypernode("c", inner("spine"))),
            "a HyperNode contains itself",
        ),
    ],
)
def test_a_refused_event_changes_nothing(refused: Event, kind: str) -> None:
    made = a_set(*TREE)
    with pytest.raises(Refused) as caught:
        made.apply(refused)
    assert caught.value.kind == kind
    assert caught.value.reply.error.startswith(kind)
    assert made.hypernodes == {each.name: each for each in TREE}
    made.apply(event(Action.UPDATE, *TREE))


def test_names_of_switches_are_legal() -> None:
    made = a_set(hypernode("MF0;A09-P1-IBLEAF-04-04:MQM8700/U1", node("gpu-1.rack-2.example")))
    assert len(made.hypernodes) == 1


def test_the_first_event_after_a_start_is_a_snapshot() -> None:
    made = a_set(*TREE)
    with pytest.raises(Refused, match="before the first snapshot"):
        made.apply(event(Action.UPDATE), first=True)
    made.apply(event(Action.SNAPSHOT), first=True)


def chain(length: int) -> list[HyperNode]:
    return [hypernode("h0", node("n1")), *(hypernode(f"h{i}", inner(f"h{i - 1}")) for i in range(1, length))]


def test_a_chain_grows_to_its_limit_at_either_end() -> None:
    longest = chain(provider_trees.MAX_DEPTH)
    made = a_set(*longest)
    top = hypernode("top", inner(f"h{provider_trees.MAX_DEPTH - 1}"))
    bottom = (hypernode("h0", inner("below")), hypernode("below", node("n1")))
    for refused in ((top,), bottom):
        with pytest.raises(Refused, match="a HyperNode lies below 32 others"):
            made.apply(event(Action.UPDATE, *refused))
    with pytest.raises(Refused, match="a HyperNode lies below 32 others"):
        a_set(*chain(provider_trees.MAX_DEPTH + 1))


@pytest.mark.parametrize(("bound", "kind"), [("MAX_HYPERNODES", "HyperNodes"), ("MAX_MEMBERS", "members")])
def test_a_set_stays_within_its_bounds(monkeypatch: pytest.MonkeyPatch, bound: str, kind: str) -> None:
    monkeypatch.setattr(provider_trees, bound, 5)
    made = a_set(*(hypernode(f"h{i}", node(f"n{i}")) for i in range(5)))
    for refused in (Action.CREATE, Action.UPDATE):
        with pytest.raises(Refused, match=f"more than 5 {kind}"):
            made.apply(event(refused, hypernode("h5", node("n5"))))
    made.apply(event(Action.UPDATE, hypernode("h4", node("n5"))))
    with pytest.raises(Refused, match=f"more than 5 {kind}"):
        made.apply(event(Action.SNAPSHOT, *(hypernode(f"h{i}", node(f"n{i}")) for i in range(6))))


NAMES = [f"h{i}" for i in range(5)]
NODES = st.sampled_from([node(f"n{i}") for i in range(6)])
INNER = st.sampled_from([inner(name) for name in NAMES])
MEMBERS = st.lists(st.one_of(NODES, NODES, INNER), min_size=1, max_size=2).map(tuple)
HYPERNODES = st.builds(HyperNode, st.sampled_from(NAMES), st.just("block"), MEMBERS, st.just(0))
EVENTS = st.lists(
    st.builds(Event, st.sampled_from(list(Action)), st.lists(HYPERNODES, max_size=3).map(tuple)), max_size=12
)


def is_valid(hypernodes: dict[str, HyperNode]) -> bool:
    """Check the rules anew, from the whole set."""
    members = [member for each in hypernodes.values() for member in each.members]
    if len(members) != len(set(members)):
        return False
    if not {member.name for member in members if member.kind == "HyperNode"} <= set(hypernodes):
        return False
    remaining = dict(hypernodes)
    while leaves := [
        name
        for name, each in remaining.items()
        if not any(member.kind == "HyperNode" and member.name in remaining for member in each.members)
    ]:
        for name in leaves:
            del remaining[name]
    return not remaining


def changed(before: dict[str, HyperNode], each: Event) -> dict[str, HyperNode] | None:
    """Return what an event would make of a set, None if it has a name twice."""
    new = {one.name: one for one in each.hypernodes}
    if len(new) < len(each.hypernodes):
        return None
    match each.action:
        case Action.SNAPSHOT:
            return new
        case Action.DELETE:
            return {name: one for name, one in before.items() if name not in new}
    return before | new


def holds(make: Callable[[], HyperNodeSet], events: list[Event]) -> None:
    made = make()
    for each in events:
        before = dict(made.hypernodes)
        wanted = changed(before, each)
        legal = wanted is not None and is_valid(wanted)
        try:
            made.apply(each)
        except Refused:
            assert not legal
            assert dict(made.hypernodes) == before
        else:
            assert legal
            assert dict(made.hypernodes) == wanted


@settings(max_examples=examples(300))
@given(EVENTS)
def test_exactly_the_events_that_leave_a_forest_are_applied(events: list[Event]) -> None:
    holds(HyperNodeSet, events)


class ForgetsParents(HyperNodeSet):
    def apply(self, event: Event, *, first: bool = False) -> None:
        self._parents = {}
        super().apply(event, first=first)


def test_the_property_finds_an_intake_that_forgets_parents() -> None:
    @settings(max_examples=300, database=None, derandomize=True, report_multiple_bugs=False, phases=[Phase.generate])
    @given(EVENTS)
    def finds(events: list[Event]) -> None:
        holds(ForgetsParents, events)

    with pytest.raises((AssertionError, KeyError), match=r"^assert|Member\(kind="):
        finds()
