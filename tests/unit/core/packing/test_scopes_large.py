"""Runs of several scopes that are too large for tables: refused by counting, or given up before they take long."""

import pytest
from gkm.packing.domains import overlapping
from gkm.packing.domains.cover import TooLargeError
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import Ceiling, Level, Location, Node, Refusal, Request


def nodes(domains: int, each: int, *scopes: str) -> list[Node]:
    """Return nodes of one GPU. The first node of every second domain is in the first scope alone."""
    return [
        Node(
            f"n{domain}-{number}",
            Location("r", "c", f"b{domain // 8}", f"d{domain:03}"),
            1,
            1,
            frozenset(scopes[:1] if domain % 2 and not number else scopes),
        )
        for domain in range(domains)
        for number in range(each)
    ]


def test_a_run_of_many_groups_in_three_scopes_is_refused_by_counting() -> None:
    parts = ("east", "middle", "west")
    found = [
        Node(
            f"{scope}-{number}",
            Location("r", scope, f"b{number // 8}", f"{scope}-{number:03}"),
            8,
            8,
            frozenset({scope}),
        )
        for scope in parts
        for number in range(600)
    ]
    ceilings = tuple(Ceiling(scope, 8 * 333) for scope in parts)
    answer = plan(Inventory.from_nodes(found), Request(8 * 1000, 8, 8, ceilings=ceilings), "v1")
    assert isinstance(answer, Refusal)
    # Each scope gives 333 groups, and there would be room for 1,800.
    assert (answer.level, answer.largest_groups) == (Level.SCOPE, 999)


def test_states_of_overlapping_scopes_are_given_up_after_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(4 * 6, 1, 4, spares=1, ceilings=(Ceiling("east", 30), Ceiling("west", 30)))
    tree = nodes(8, 4, "east", "west")
    assert not isinstance(plan(tree, request, "v1"), Refusal)
    monkeypatch.setattr(overlapping, "MAX_STEPS", 50)
    with pytest.raises(TooLargeError, match="ask for fewer spares or for scopes that do not overlap"):
        plan(tree, request, "v1")


def test_what_a_domain_could_take_is_given_up_after_so_many_mixtures(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(4 * 6, 1, 4, spares=1, ceilings=(Ceiling("east", 30), Ceiling("west", 30)))
    monkeypatch.setattr(overlapping, "MAX_TRIED", 1)
    with pytest.raises(TooLargeError, match="ask for fewer spares or for scopes that do not overlap"):
        plan(nodes(8, 4, "east", "west"), request, "v1")
