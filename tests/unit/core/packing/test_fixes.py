"""What would make a run fit, in cases that a person can work out, in sentences that a person can act on."""

from dataclasses import replace

import pytest
from gkm.packing import fixes as finders
from gkm.packing.fixes import MAX_NAME, MAX_NAMED, changes
from gkm.packing.inventory import Inventory
from gkm.packing.values import Ceiling, Fix, FixKind, Location, Malleability, Node, Request, Within


def domain(name: str, *free: int, scopes: frozenset[str] = frozenset()) -> list[Node]:
    place = Location("r", "c", "b1", name)
    return [Node(f"{name}-{number}", place, 8, gpus, scopes) for number, gpus in enumerate(free)]


def found_for(nodes: list[Node], request: Request) -> dict[FixKind, list[Fix]]:
    found: dict[FixKind, list[Fix]] = {}
    for fix in changes(Inventory.from_nodes(nodes), request).fixes:
        found.setdefault(fix.kind, []).append(fix)
    return found


def test_spreading() -> None:
    found = found_for([*domain("d1", 8), *domain("d2", 8)], Request(16, 8, 8, may_spread=False))
    assert [fix.sentence for fix in found[FixKind.SPREAD]] == ["let the run spread over several domains"]


def of_block(block: str, name: str, *free: int, cluster: str = "c") -> list[Node]:
    return [Node(f"{name}-{at}", Location("r", cluster, block, name), 8, gpus) for at, gpus in enumerate(free)]


@pytest.mark.parametrize(
    ("cluster", "within", "sentence"),
    [
        ("c", Within.BLOCK, "let the run leave its block, and stay within one cluster"),
        ("other", Within.BLOCK, "let the run leave its block, and stay within one region"),
        ("other", Within.CLUSTER, "let the run leave its cluster, and stay within one region"),
    ],
)
def test_the_closest_area_that_holds_the_run(cluster: str, within: Within, sentence: str) -> None:
    nodes = [*of_block("b1", "d1", 8, 8), *of_block("b2", "d2", 8, 8, cluster=cluster)]
    found = found_for(nodes, Request(32, 8, 8, within=within))
    assert [fix.sentence for fix in found[FixKind.LEAVE_AREA]] == [sentence]


def test_a_run_that_leaves_its_region_may_be_anywhere() -> None:
    nodes = [Node(f"n{at}", Location(f"r{at}", "c", "b", "d"), 8, 8) for at in range(2)]
    (fix,) = found_for(nodes, Request(16, 8, 8, within=Within.REGION))[FixKind.LEAVE_AREA]
    assert (fix.sentence, dict(fix.changes)) == ("let the run leave its region", {"anywhere": 1})


def test_unequal_shares() -> None:
    found = found_for([*domain("d1", 8, 8, 8), *domain("d2", 8, 8)], Request(40, 8, 8, balanced=True))
    assert [fix.sentence for fix in found[FixKind.UNBALANCED]] == ["let domains have different numbers of groups"]
    assert FixKind.UNBALANCED not in found_for(domain("d1", 8), Request(16, 8, 8, balanced=True))


def test_pods_that_a_node_can_hold() -> None:
    (fix,) = found_for(domain("d1", 8, 8, 8), Request(24, 24, 24))[FixKind.SMALLER_PODS]
    assert (fix.sentence, dict(fix.changes)) == ("ask for pods of 8 GPUs instead of 24", {"pod": 8})
    assert FixKind.SMALLER_PODS not in found_for(domain("d1", 4, 4), Request(8, 8, 8))
    # Pods of one GPU also allow this malleable run to be one of one GPU.
    (fix,) = found_for(
        [replace(node, total=2) for node in domain("d1", 1)], Request(3, 3, 3, malleability=Malleability(1, 1))
    )[FixKind.SMALLER_PODS]
    assert fix.changes == {"pod": 1}


def test_the_most_spares_that_fit() -> None:
    found = found_for(domain("d1", 8, 8, 8), Request(16, 8, 16, spares=3))
    assert [fix.sentence for fix in found[FixKind.FEWER_SPARES]] == ["ask for 1 spare pod a group instead of 3"]
    none = found_for(domain("d1", 8, 8), Request(16, 8, 16, spares=3))
    assert [fix.sentence for fix in none[FixKind.FEWER_SPARES]] == ["ask for no spare pods a group instead of 3"]


def test_two_changes_at_once_where_neither_alone_is_enough() -> None:
    found = found_for([*domain("d1", 8, 8), *domain("d2", 8)], Request(24, 8, 8, spares=1, may_spread=False))
    assert FixKind.SPREAD not in found
    assert FixKind.FEWER_SPARES not in found
    assert dict(found[FixKind.SPREAD_AND_FEWER_SPARES][0].changes) == {"spread": 1, "spares": 0}


def test_the_largest_run_of_whole_groups_and_the_one_with_a_short_last_group() -> None:
    found = found_for([*domain("d1", 8, 8, 8)], Request(32, 8, 16))
    assert [fix.sentence for fix in found[FixKind.SMALLER]] == [
        "ask for 16 GPUs instead of 32: 1 group",
        "ask for 24 GPUs instead of 32: 1 group and a last group of 8",
    ]


def test_a_malleable_run_is_made_to_fit_in_its_smallest_size() -> None:
    request = Request(40, 8, 8, malleability=Malleability(step_gpus=8, min_gpus=24))
    found = found_for(domain("d1", 8, 8, 0, 0, 0), request)
    assert [fix.sentence for fix in found[FixKind.SMALLER]] == [
        "ask for 16 GPUs, in this size only, instead of 24 at least: 2 groups"
    ]
    assert len(found[FixKind.FREE_NODES][0].changes) == 1


def test_the_fewest_nodes_are_those_where_little_is_missing() -> None:
    # Two groups of two whole nodes: one node of d1 completes a group; d2 has another for two nodes, d3 for one.
    nodes = [*domain("d1", 8, 3), *domain("d2", 0, 0), *domain("d3", 8, 5)]
    (fix,) = found_for(nodes, Request(32, 8, 16))[FixKind.FREE_NODES]
    assert dict(fix.changes) == {"d1-1": 5, "d3-1": 3}
    assert fix.sentence == "free 2 nodes (8 GPUs are in use there), the fewest that do: d1-1, d3-1"


def test_slots_of_spares_may_be_freed_in_any_domain() -> None:
    # Both groups fit as they are; a spare of theirs lacks one slot, which only the other domain can give.
    nodes = [*domain("d1", 8, 8, 8, 8), *domain("d2", 8, 2)]
    (fix,) = found_for(nodes, Request(32, 8, 16, spares=1))[FixKind.FREE_NODES]
    assert (dict(fix.changes), fix.least) == ({"d2-1": 6}, True)


def test_a_pod_that_is_larger_than_every_node_is_not_mended_by_freeing_any() -> None:
    assert FixKind.FREE_NODES not in found_for(domain("d1", 0, 0, 0), Request(16, 16, 16))


def test_a_sentence_names_a_few_nodes_and_changes_all_of_them() -> None:
    nodes = [Node(f"{number:02}" * 99, Location("r", "c", "b", "d"), 8, 0) for number in range(20)]
    (fix,) = found_for(nodes, Request(160, 8, 8))[FixKind.FREE_NODES]
    assert len(fix.changes) == 20
    assert fix.sentence.endswith(" and 14 more")
    assert len(fix.sentence) < 100 + MAX_NAMED * (MAX_NAME + 2)


def test_the_least_ceiling_of_each_scope_that_alone_would_do_the_smallest_raise_first() -> None:
    scopes = frozenset({"gold", "tin"})
    request = Request(40, 8, 8, ceilings=(Ceiling("gold", 17), Ceiling("tin", 15)))
    found = found_for(domain("d1", 8, 8, 8, 8, 8, scopes=scopes), request)[FixKind.RAISE_CEILING]
    # 17 GPUs of gold are two groups, and 15 of tin are one.
    assert [fix.sentence for fix in found] == [
        "raise the ceiling of scope tin from 15 to 24 GPUs",
        "raise the ceiling of scope gold from 17 to 32 GPUs",
    ]


@pytest.mark.parametrize("count", [1, 8])
def test_there_are_never_more_than_eight(count: int) -> None:
    names = [f"s{number}" for number in range(count)]
    nodes = domain("d1", 8, 8, 8, 0, scopes=frozenset(names))
    request = Request(24, 8, 8, ceilings=tuple(Ceiling(name, 0) for name in names))
    found = changes(Inventory.from_nodes(nodes), request).fixes
    assert len(found) == count
    assert {fix.kind for fix in found} == {FixKind.RAISE_CEILING}


def test_where_nothing_is_there_nothing_is_reported() -> None:
    assert changes(Inventory.from_nodes([]), Request(8, 8, 8)).fixes == ()


@pytest.mark.parametrize("groups", [1, 2, 5, 6, 11])
def test_of_many_domains_that_are_alike_as_many_are_freed_as_groups_are_missing(groups: int) -> None:
    nodes = [node for number in range(11) for node in domain(f"d{number:02}", 3)]
    (fix,) = found_for(nodes, Request(8 * groups, 8, 8))[FixKind.FREE_NODES]
    assert (len(fix.changes), fix.least) == (groups, True)


def test_scopes_free_nodes_only_as_far_as_their_ceilings_let_them() -> None:
    gold, tin = frozenset({"gold"}), frozenset({"tin"})
    # Each ceiling is for one group more, so that two nodes of gold are not enough.
    nodes = [*domain("d1", 8, 0, scopes=gold), *domain("d2", 8, 4, scopes=tin), *domain("d3", 0, scopes=gold)]
    request = Request(32, 8, 8, ceilings=(Ceiling("gold", 16), Ceiling("tin", 16)))
    (fix,) = found_for(nodes, request)[FixKind.FREE_NODES]
    assert len(fix.changes) == 2
    assert "d2-1" in fix.changes


def test_one_gpu_and_one_node_are_told_as_one() -> None:
    (fix,) = found_for(domain("d1", 7), Request(8, 8, 8))[FixKind.FREE_NODES]
    assert fix.sentence == "free 1 node (1 GPU is in use there): d1-0"
    (smaller,) = found_for(domain("d1", 1), Request(2, 1, 1))[FixKind.SMALLER]
    assert smaller.sentence == "ask for 1 GPU instead of 2: 1 group"


def test_what_takes_too_long_to_plan_is_noted_and_the_rest_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = Inventory.from_nodes(domain("d1", 8, 8, 8, 0))
    request = Request(32, 8, 8)
    assert [fix.kind for fix in changes(inventory, request).fixes] == [FixKind.FREE_NODES, FixKind.SMALLER]
    # Three groups are planned sooner than four.
    monkeypatch.setattr(finders, "MAX_WORK", 6)
    found = changes(inventory, request)
    assert [fix.kind for fix in found.fixes] == [FixKind.SMALLER]
    assert [note.partition(";")[0] for note in found.notes] == ["left out: freeing nodes"]


def test_each_of_sixteen_scopes_that_overlap_has_its_least_ceiling() -> None:
    names = [f"s{number:02}" for number in range(16)]
    nodes = domain("d1", 8, 8, 8, 0, scopes=frozenset(names))
    request = Request(24, 8, 8, ceilings=tuple(Ceiling(name, 0) for name in names))
    found = changes(Inventory.from_nodes(nodes), request)
    assert [dict(fix.changes) for fix in found.fixes] == [{name: 24} for name in names[:8]]
    assert found.notes == ("8 larger changes would do as well",)


def test_a_run_within_one_block_frees_nodes_of_one_block() -> None:
    nodes = [replace(node, place=node.place._replace(block=block)) for block in ("b1", "b2") for node in _half(block)]
    request = Request(24, 8, 8, within=Within.BLOCK)
    (fix,) = found_for(nodes, request)[FixKind.FREE_NODES]
    assert len(fix.changes) == 2
    assert len({name.partition("-")[0] for name in fix.changes}) == 1
    assert fix.least


def _half(block: str) -> list[Node]:
    return [*domain(f"{block}d1", 8, 0), *domain(f"{block}d2", 0, 0)]


def test_a_change_that_gives_domains_unequal_shares_is_noted() -> None:
    # Four groups in equal shares: 3 + 1 is what freeing one node makes, and 2 + 2 needs that of the other domain.
    nodes = [*domain("d1", 8, 8, 8), *domain("d2", 0, 0)]
    found = changes(Inventory.from_nodes(nodes), Request(32, 8, 8, balanced=True))
    assert FixKind.FREE_NODES not in {fix.kind for fix in found.fixes}
    assert found.notes == (
        "left out: freeing nodes; the smallest such change does not give each domain equally many groups",
    )


def test_how_many_more_would_do_is_told_where_there_is_not_room_for_all() -> None:
    names = [f"s{number}" for number in range(8)]
    nodes = domain("d1", 8, 8, 8, 0, scopes=frozenset(names))
    # One group fits: so a smaller run is told too, and the highest raise is not.
    ceilings = tuple(Ceiling(name, 8 * (number == 0)) for number, name in enumerate(names))
    found = changes(Inventory.from_nodes(nodes), Request(24, 8, 8, ceilings=ceilings))
    assert len(found.fixes) == 8
    assert found.notes == ("1 larger change would do as well",)
