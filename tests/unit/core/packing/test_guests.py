"""Spares that leave the domain of their group go as near as they can, and leave others what these cannot do without."""

from collections.abc import Sequence
from itertools import product

from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.inventory import Inventory
from gkm.packing.nodes.guests import Departure, Guests, assign_guests, distance_between
from gkm.packing.plan import plan
from gkm.packing.values import Ceiling, Distance, Location, Node, Plan, Request
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.examples import examples

HOME = Location("r", "c1", "b1", "d1")
BLOCK, CLUSTER = HOME._replace(domain="d2"), HOME._replace(block="b2")
REGION, WORLD = HOME._replace(cluster="c2"), HOME._replace(region="s")


def offer_of(*nodes: Node, scopes: Sequence[str] = ()) -> Capacity:
    ceilings = tuple(Ceiling(name, 1000) for name in scopes)
    return capacity(Inventory.from_nodes(nodes), Request(1, 1, 1, ceilings=ceilings))


def test_a_level_is_left_only_when_it_is_full() -> None:
    offer = offer_of(*[Node(f"n{n}", at, 1, 1) for n, at in enumerate([HOME, BLOCK, CLUSTER, REGION, WORLD])])
    home = offer.inventory.places.index(HOME)
    (placed,) = assign_guests(offer, {home: {0: 1}}, [Departure(home, 0, 4)])
    assert [(offer.inventory.places[guest.domain], guest.distance) for guest in placed] == [
        (BLOCK, Distance.BLOCK),
        (CLUSTER, Distance.CLUSTER),
        (REGION, Distance.REGION),
        (WORLD, Distance.NONE),
    ]


def test_the_rack_of_the_group_comes_before_the_rest_of_its_block() -> None:
    first, mine = HOME._replace(domain="d0"), HOME._replace(domain="d9")
    nodes = [Node("a", first, 8, 8), Node("b", HOME, 8, 8, rack="r1")]
    for rack, expected in (("r1", ("c", Distance.RACK)), ("", ("a", Distance.BLOCK)), ("r2", ("a", Distance.BLOCK))):
        tree = [*nodes, Node("c", mine, 8, 8, rack=rack)]
        placed = assign_guests(offer_of(*tree), {1: {0: 8}}, [Departure(1, 0, 1)])
        guest = placed[0][0]
        assert (tree[guest.domain].name, guest.distance) == expected


def test_a_domain_whose_nodes_are_in_two_racks_is_in_none() -> None:
    offer = offer_of(
        Node("a", HOME, 8, 8, rack="r1"), Node("b", HOME, 8, 8, rack="r2"), Node("c", BLOCK, 8, 8, rack="r1")
    )
    assert distance_between(offer.inventory, 0, 1) is Distance.BLOCK


def test_racks_of_two_clusters_that_share_a_name_are_two() -> None:
    offer = offer_of(Node("a", HOME, 8, 8, rack="r1"), Node("b", REGION, 8, 8, rack="r1"))
    assert distance_between(offer.inventory, 0, 1) is Distance.REGION


def test_what_is_left_in_used_domains_goes_first() -> None:
    used = HOME._replace(domain="d3")
    offer = offer_of(Node("a", HOME, 1, 1), Node("b", BLOCK, 1, 1), Node("c", used, 2, 2))
    placed = assign_guests(offer, {0: {0: 1}, 2: {0: 1}}, [Departure(0, 0, 1)])
    assert placed == [[Guests(2, Distance.BLOCK, 1)]]


def test_spares_leave_the_slots_that_others_cannot_do_without() -> None:
    # The first spare would take the node of both scopes in its block; the second has no other node at all.
    both, one = frozenset({"s0", "s1"}), frozenset({"s0"})
    offer = offer_of(
        Node("home", HOME, 2, 2, both), Node("near", BLOCK, 1, 1, both), Node("far", CLUSTER, 1, 1, one),
        scopes=("s0", "s1"),
    )  # fmt: skip
    placed = assign_guests(offer, {0: {0: 1, 1: 1}}, [Departure(0, 0, 1), Departure(0, 1, 1)])
    assert placed == [[Guests(2, Distance.CLUSTER, 1)], [Guests(1, Distance.BLOCK, 1)]]


def test_a_plan_names_the_nearest_rack() -> None:
    d = [HOME._replace(domain=f"d{number}") for number in range(4)]
    nodes = [Node(f"n{at}", place, 8, free, rack=rack) for at, (place, free, rack) in enumerate(
        [(d[0], 2, "r1"), (d[1], 1, "r2"), (d[2], 1, "r1"), (d[3], 1, "r3")]
    )]  # fmt: skip
    answer = plan(nodes, Request(2, 1, 2, spares=1), "v")
    assert isinstance(answer, Plan)
    assert [(spare.node, spare.distance) for spare in answer.groups[0].spares] == [("n2", Distance.RACK)]


PLACES = [HOME, BLOCK, CLUSTER]
KINDS = [frozenset({"s0"}), frozenset({"s1"}), frozenset({"s0", "s1"})]


@st.composite
def small(draw: st.DrawFn, *, overlap: bool) -> tuple[Capacity, dict[int, dict[int, int]], list[Departure]]:
    slots = [[draw(st.integers(0, 2)) for _ in KINDS[: 3 if overlap else 2]] for _ in PLACES]
    slots[0][0] += not any(map(sum, slots))
    nodes = [
        Node(f"n{at}{kind}", PLACES[at], 9, count, KINDS[kind])
        for at, row in enumerate(slots)
        for kind, count in enumerate(row)
    ]
    stays = {0: {0: draw(st.integers(0, 2)), 1: draw(st.integers(0, 1))}, 1: {1: draw(st.integers(0, 1))}}
    leaving = [Departure(0, 0, draw(st.integers(0, 2))), Departure(0, 1, draw(st.integers(0, 1))), Departure(1, 1, 1)]
    return offer_of(*nodes, scopes=("s0", "s1")), stays, leaving


def levels_possible(
    offer: Capacity, stays: dict[int, dict[int, int]], leaving: list[Departure]
) -> set[tuple[int, ...]]:
    """Return how many spares each level can have, in every way to give all pods a slot each."""
    slots = [
        (domain, number)
        for domain in range(len(offer.slots))
        for number, kind in enumerate(offer.kinds)
        for _ in range(int(offer.slots[domain][number]))
    ]
    fixed = [(domain, scope, True) for domain, by in stays.items() for scope, count in by.items() for _ in range(count)]
    units = [*fixed, *((home, scope, False) for home, scope, count in leaving for _ in range(count))]
    free = {slot: slots.count(slot) for slot in slots}
    names = sorted(free)
    states = {(tuple(free[name] for name in names), (0,) * len(Distance))}
    for home, scope, stay in units:
        after = set()
        for (left, counts), (at, (domain, kind)) in product(states, enumerate(names)):
            if left[at] and scope in offer.kinds[kind] and (domain == home or not stay):
                level = list(Distance).index(distance_between(offer.inventory, home, domain))
                more = counts if stay else tuple(count + (n == level) for n, count in enumerate(counts))
                after.add((tuple(count - (n == at) for n, count in enumerate(left)), more))
        states = after
    return {counts for _, counts in states}


def counted(placed: list[list[Guests]]) -> tuple[int, ...]:
    return tuple(sum(guest.spares for some in placed for guest in some if guest.distance is far) for far in Distance)


@settings(max_examples=examples(150))
@given(small(overlap=False))
def test_without_overlap_as_many_spares_as_can_be_are_within_each_level(
    case: tuple[Capacity, dict[int, dict[int, int]], list[Departure]],
) -> None:
    possible = levels_possible(*case)
    assume(possible)
    assert counted(assign_guests(*case)) == max(possible)


@settings(max_examples=examples(300))
@given(small(overlap=True))
def test_with_overlap_all_spares_that_fit_are_placed_within_levels_that_are_possible(
    case: tuple[Capacity, dict[int, dict[int, int]], list[Departure]],
) -> None:
    possible = levels_possible(*case)
    assume(possible)
    assert counted(assign_guests(*case)) in possible
