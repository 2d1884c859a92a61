"""The checker finds a lie: a true plan has no problem, and each change to it one that names what is wrong."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from gkm.api.plans import PlanMetrics
from gkm.packing.values import (
    Ceiling,
    Distance,
    Group,
    Location,
    Malleability,
    Node,
    Plan,
    Request,
    Share,
    Spare,
    Within,
)
from msgspec import structs
from support.packing.checker import false_groups, problems
from support.packing.checker_hash import canonical, expected_hash

A, B, C = Location("r", "c", "b1", "a"), Location("r", "c", "b1", "b"), Location("r", "c", "b2", "c")
NODES = (Node("a1", A, 4, 4), Node("a2", A, 8, 4), Node("b1", B, 4, 2), Node("c1", C, 4, 4))
REQUEST = Request(gpus=8, pod_gpus=2, group_gpus=4, spares=1)
FIRST = Group(0, 4, A, "", (Share("a1", 4),), (Spare("a2", 2, A, Distance.DOMAIN),))
SECOND = Group(1, 4, C, "", (Share("c1", 4),), (Spare("b1", 2, B, Distance.CLUSTER),))


def sealed(plan: Plan) -> Plan:
    return replace(plan, hash=expected_hash(plan))


METRICS = PlanMetrics(
    domains=2, lower_bound=1, gap=1, stranded_gpus=2, blocks=2, pristine_domains=1, spares_elsewhere=1
)
TRUE = sealed(Plan(REQUEST, 8, (FIRST, SECOND), METRICS, "v1", ""))


def groups(*changed: Group) -> Plan:
    return replace(TRUE, groups=changed)


def in_one_domain(*, stranded: int, pristine: int) -> PlanMetrics:
    """Return the true metrics of a plan in one domain without spares."""
    return PlanMetrics(1, 1, 0, stranded, 1, pristine, 0)


def metrics(**changes: int) -> Plan:
    return replace(TRUE, metrics=structs.replace(METRICS, **changes))


def of_first(**changes: object) -> Plan:
    return groups(replace(FIRST, **changes), SECOND)  # type: ignore[arg-type]


def spare_of_first(node: str, place: Location = A, distance: Distance = Distance.DOMAIN, gpus: int = 2) -> Plan:
    return of_first(spares=(Spare(node, gpus, place, distance),))


LIES: list[tuple[Callable[[], Plan], str]] = [
    (lambda: groups(FIRST), "groups of [4] GPUs, not of [4, 4]"),
    (lambda: groups(SECOND, FIRST), "groups are not numbered from 0 on"),
    (lambda: replace(TRUE, gpus=6), "6 GPUs are planned, and the run has 8"),
    (lambda: replace(TRUE, request=replace(REQUEST, spares=0)), "it is a plan of another request"),
    (lambda: of_first(nodes=(Share("zz", 4),)), "node zz is not in the inventory"),
    (lambda: of_first(nodes=(Share("b1", 4),)), "node b1 gives 6 GPUs and has 2"),
    (lambda: of_first(nodes=(Share("c1", 4),)), "group 0 lies in r/c/b1/a, and its node c1 in r/c/b2/c"),
    (lambda: of_first(nodes=(Share("a1", 3), Share("a2", 1))), "group 0 takes 3 GPUs of a1, which are no whole pods"),
    (lambda: of_first(nodes=(Share("a1", 2),)), "group 0 says 4 GPUs, and its nodes give another number"),
    (lambda: of_first(nodes=(Share("a2", 2), Share("a1", 2))), "the nodes of group 0 are not each there once, by name"),
    (lambda: of_first(nodes=(Share("a1", 2), Share("a1", 2))), "the nodes of group 0 are not each there once, by name"),
    (lambda: of_first(scope="gold"), "group 0 lies in scope 'gold', which the run does not have"),
    (lambda: of_first(spares=()), "group 0 has 0 spares, not 1"),
    (lambda: spare_of_first("a2", gpus=1), "takes 1 GPUs, not those of a pod"),
    (lambda: spare_of_first("a2", place=B), "says it lies in r/c/b1/b, and its node lies in r/c/b1/a"),
    (lambda: spare_of_first("a2", distance=Distance.BLOCK), "says block, which is not how near it is"),
    (lambda: spare_of_first("b1", B, Distance.BLOCK), "is on b1, and a2 is nearer and has a slot left"),
    (lambda: spare_of_first("b1", B, Distance.BLOCK), "0 spares stay within their domain, and 1 could"),
    (lambda: metrics(domains=1), "domains is 2, and the plan says 1"),
    (lambda: metrics(blocks=1), "blocks is 2, and the plan says 1"),
    (lambda: metrics(stranded_gpus=0), "stranded_gpus is 2, and the plan says 0"),
    (lambda: metrics(pristine_domains=0), "pristine_domains is 1, and the plan says 0"),
    (lambda: metrics(spares_elsewhere=0), "spares_elsewhere is 1, and the plan says 0"),
    (lambda: metrics(lower_bound=3, gap=-1), "a lower bound of 3 that is none"),
    (lambda: metrics(gap=0), "gap is 1, and the plan says 0"),
    (lambda: replace(TRUE, inventory_version="v2"), "the hash is not that of"),
    (lambda: replace(TRUE, hash=TRUE.hash.upper()), "the hash is not that of"),
]


def test_a_true_plan_has_no_problem() -> None:
    assert problems(NODES, REQUEST, TRUE) == []


@pytest.mark.parametrize(("lie", "found"), LIES, ids=[found for _, found in LIES])
def test_a_lie_is_named(lie: Callable[[], Plan], found: str) -> None:
    told = lie()
    assert told != TRUE
    assert [problem for problem in problems(NODES, REQUEST, told) if found in problem]


def test_a_run_that_may_not_spread_lies_in_one_domain_with_its_spares() -> None:
    request = replace(REQUEST, may_spread=False)
    assert "the run may not spread, and lies in 3 domains" in problems(NODES, request, replace(TRUE, request=request))


def test_a_run_within_a_block_lies_in_one_block() -> None:
    request = replace(REQUEST, within=Within.BLOCK)
    found = problems(NODES, request, sealed(replace(TRUE, request=request)))
    assert found == ["the run stays within a block, and lies in several"]


def test_a_balanced_run_has_equally_many_groups_in_each_of_its_domains() -> None:
    third = Group(2, 4, A, "", (Share("a2", 4),))
    request = Request(gpus=12, pod_gpus=2, group_gpus=4, balanced=True)
    placed = [replace(group, spares=()) for group in (FIRST, SECOND, third)]
    assert false_groups(NODES, request, placed) == ["the run is balanced, and its domains have unequal shares"]
    assert false_groups(NODES, replace(request, gpus=8), placed[:2]) == []


def test_spares_may_lack_only_where_the_caller_says_so_and_are_never_too_many() -> None:
    without = [replace(FIRST, spares=()), SECOND]
    assert false_groups(NODES, REQUEST, without) == ["group 0 has 0 spares, not 1"]
    assert false_groups(NODES, REQUEST, without, spares_may_lack=True) == []
    none_asked = replace(REQUEST, spares=0)
    found = false_groups(NODES, none_asked, [FIRST, SECOND], spares_may_lack=True)
    assert found == ["group 0 has 1 spares, not 0", "group 1 has 1 spares, not 0"]


def test_a_spare_shares_a_node_with_its_group_only_where_no_other_has_a_slot_left() -> None:
    request = Request(gpus=2, pod_gpus=2, group_gpus=2, spares=1)
    group = Group(0, 2, A, "", (Share("a1", 2),), (Spare("a1", 2, A, Distance.DOMAIN),))
    for more, found in ((2, ["a spare of group 0 shares node a1, and a2 has a slot left"]), (1, [])):
        nodes = (Node("a1", A, 4, 4), Node("a2", A, 4, more))
        plan = sealed(Plan(request, 2, (group,), in_one_domain(stranded=more, pristine=0), "v", ""))
        assert problems(nodes, request, plan) == found


def test_spares_that_could_change_places_are_found() -> None:
    nodes = tuple(Node(name, A, 4, 4) for name in ("a1", "a2"))
    request = Request(gpus=4, pod_gpus=2, group_gpus=2, spares=1)
    for first, second, apart in (("a2", "a1", True), ("a1", "a2", False)):
        one = Group(0, 2, A, "", (Share("a1", 2),), (Spare(first, 2, A, Distance.DOMAIN),))
        two = Group(1, 2, A, "", (Share("a2", 2),), (Spare(second, 2, A, Distance.DOMAIN),))
        found = problems(
            nodes, request, sealed(Plan(request, 4, (one, two), in_one_domain(stranded=0, pristine=1), "v", ""))
        )
        assert found == ([] if apart else ["spares of groups 0 and 1 share nodes with them, and could change places"])


def test_a_scope_gives_no_more_than_its_ceiling_spares_included() -> None:
    nodes = (Node("a1", A, 6, 6, frozenset({"gold"})),)
    group = Group(0, 4, A, "gold", (Share("a1", 4),), (Spare("a1", 2, A, Distance.DOMAIN),))
    for most, found in ((6, []), (5, ["scope gold gives 6 GPUs, and at most 5"])):
        request = Request(gpus=4, pod_gpus=2, group_gpus=4, spares=1, ceilings=(Ceiling("gold", most),))
        plan = sealed(Plan(request, 4, (group,), in_one_domain(stranded=0, pristine=1), "v", ""))
        assert problems(nodes, request, plan) == found


def test_nodes_of_a_group_and_its_spares_are_in_its_scope() -> None:
    nodes = (Node("a1", A, 4, 4, frozenset({"gold"})), Node("a2", A, 2, 2, frozenset({"tin"})))
    request = Request(gpus=4, pod_gpus=2, group_gpus=4, spares=1, ceilings=(Ceiling("gold", 9), Ceiling("tin", 9)))
    group = Group(0, 4, A, "tin", (Share("a1", 4),), (Spare("a2", 2, A, Distance.DOMAIN),))
    found = problems(nodes, request, Plan(request, 4, (group,), in_one_domain(stranded=0, pristine=1), "v", ""))
    assert "node a1 of group 0 is not in its scope tin" in found
    found = problems(
        nodes,
        request,
        Plan(request, 4, (replace(group, scope="gold"),), in_one_domain(stranded=0, pristine=1), "v", ""),
    )
    assert "a spare of group 0 on a2 is not in the scope of its group, gold" in found


@pytest.mark.parametrize(("gpus", "legal"), [(8, True), (6, False), (4, True), (2, False)])
def test_a_malleable_run_is_smaller_by_whole_steps_and_not_below_its_least(gpus: int, *, legal: bool) -> None:
    request = replace(REQUEST, malleability=Malleability(step_gpus=4, min_gpus=4))
    found = problems(NODES, request, replace(TRUE, request=request, gpus=gpus))
    assert (f"{gpus} GPUs are no size that the run may have" in found) is not legal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": [1, -2], "a": {}}, '{"a":{},"b":[1,-2]}'),
        ('\u20ac$\x0f\nA\'B"\\"/', '"\u20ac$\\u000f\\nA\'B\\"\\\\\\"/"'),  # the text in RFC 8785, section 3.2.2
        ({"\ufb33": 1, "\U0001f600": 2, "1": 3}, '{"1":3,"\U0001f600":2,"\ufb33":1}'),  # and the order of 3.2.3
        ([True, False, None], "[true,false,null]"),
    ],
)
def test_canonical_json_is_as_its_standard_says(value: object, text: str) -> None:
    assert canonical(value) == text


def test_a_number_that_is_not_whole_has_no_canonical_form() -> None:
    with pytest.raises(TypeError, match="float has no place"):
        canonical([0.5])
