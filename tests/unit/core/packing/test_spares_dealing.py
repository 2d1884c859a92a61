"""Slots that several can take are dealt out so that all get what they want, where that is possible at all."""

from gkm.packing.domains.mixtures import fits, subsets
from gkm.packing.domains.options import WHOLE
from gkm.packing.nodes.dealing import Deal
from gkm.packing.plan import plan
from gkm.packing.values import Ceiling, Distance, Location, Node, Plan, Request
from hypothesis import given
from hypothesis import strategies as st

KINDS = list(subsets(range(3)))


def deal_of(slots: dict[frozenset[int], int]) -> Deal[int, frozenset[int]]:
    return Deal(slots, lambda scope, kind: (len(kind), sorted(kind)) if scope in kind else None)


def test_who_can_take_something_else_gives_way() -> None:
    def order(want: str, kind: str) -> tuple[bool] | None:
        return None if (want, kind) == ("fixed", "far") else (kind == "far",)

    deal = Deal({"near": 1, "far": 1}, order)
    assert deal.give("free", 1)
    assert deal.given["free", "near"] == 1
    assert deal.give("fixed", 1)
    assert (deal.given["fixed", "near"], deal.given["free", "far"], deal.given["free", "near"]) == (1, 1, 0)


def test_what_became_free_nearby_is_taken() -> None:
    deal: Deal[str, str] = Deal({"near": 1, "far": 1}, lambda _, kind: (kind == "far",))
    assert deal.give("one", 2)
    deal.given["one", "near"] -= 1
    deal.free["near"] += 1
    deal.settle()
    assert deal.given["one", "near"] == 1
    assert deal.free == {"near": 0, "far": 1}


@given(st.lists(st.integers(0, 4), min_size=7, max_size=7), st.lists(st.integers(0, 5), min_size=3, max_size=3))
def test_all_get_what_they_want_if_and_only_if_halls_condition_holds(counts: list[int], wanted: list[int]) -> None:
    slots = dict(zip(KINDS, counts, strict=True))
    deal = deal_of(slots)
    given_all = all(deal.give(scope, count) for scope, count in enumerate(wanted))
    assert given_all == fits(slots, wanted, 1, 0, WHOLE)
    for kind, count in slots.items():
        assert sum(deal.given.get((scope, kind), 0) for scope in range(3)) + deal.free[kind] == count


def test_spares_leave_within_the_scope_of_their_group_where_scopes_overlap() -> None:
    both, one = frozenset({"a", "b"}), frozenset({"a"})
    here, there = Location("r", "c", "b1", "d1"), Location("r", "c", "b2", "d1")
    nodes = [Node("n1", here, 8, 8, both), Node("n2", there, 8, 8, one), Node("n3", there, 8, 8, frozenset({"b"}))]
    request = Request(8, 8, 8, spares=1, ceilings=(Ceiling("a", 16), Ceiling("b", 8)))
    found = plan(nodes, request, "1")
    assert isinstance(found, Plan)
    (group,) = found.groups
    assert group.scope == "a"  # that of b would take 16 GPUs with its spare
    assert {group.nodes[0].node, group.spares[0].node} == {"n1", "n2"}
    assert group.spares[0].distance is Distance.CLUSTER
    assert found.metrics.spares_elsewhere == 1
