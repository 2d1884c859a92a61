"""Rules for each area of a level: plans of random small runs cost what an independent integer program says.

`GKM_PACKING_EXAMPLES` is how many seeds are drawn: without it those that support.examples runs of 300.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest
from gkm.packing.fixes import changes
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import AREAS, AreaRule, FixKind, Level, Location, Malleability, Node, Plan, Refusal, Request
from support.examples import examples
from support.packing.area_rules import broken_rules, drawn, least_cost
from support.packing.brute import priced
from support.packing.checker import false_groups

EXAMPLES = os.environ.get("GKM_PACKING_EXAMPLES")
SEEDS = int(EXAMPLES or 300)
PART = 50
DRAWN = PART if EXAMPLES else examples(PART)


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_a_run_gets_the_plan_of_least_cost_or_a_true_refusal(first: int) -> None:
    planned = 0
    for seed in range(first, first + DRAWN):
        nodes, request = drawn(seed)
        answer, expected = plan(nodes, request, "v"), least_cost(nodes, request)
        if isinstance(answer, Refusal):
            assert expected is None, f"seed {seed}: refused ({answer.message}), and this fits: {expected}"
            judge_refusal(nodes, request, answer, seed)
            continue
        assert expected is not None, f"seed {seed}: planned what does not fit"
        assert [*false_groups(nodes, request, answer.groups), *broken_rules(nodes, request, answer.groups)] == [], seed
        assert priced(nodes, answer).cost.by(request.policy) == expected.by(request.policy), seed
        assert answer.metrics.gap == 0, seed
        planned += 1
    assert DRAWN // 10 <= planned <= DRAWN - DRAWN // 10, "hardly any draw fits, or hardly any does not"


def judge_refusal(nodes: tuple[Node, ...], request: Request, answer: Refusal, seed: int) -> None:
    """The largest size fits and the next does not; a rule is named only where the run fits without it."""
    unit = request.unit_gpus // request.group_gpus
    if largest := answer.largest_groups:
        assert least_cost(nodes, replace(request, gpus=largest * request.group_gpus)) is not None, seed
    if (more := largest + unit) <= request.groups:
        assert least_cost(nodes, replace(request, gpus=more * request.group_gpus)) is None, seed
    without = least_cost(nodes, replace(request, per_area=()))
    assert ("would fit, but not with" in answer.message) == (without is not None), (seed, answer.message)
    if without is not None:
        assert answer.level in [rule.level for rule in request.per_area], seed


def racks(count: int = 4, nodes: int = 18, blocks: int = 2, gpus: int = 4) -> list[Node]:
    """Return racks of one NVLink domain each, in blocks of equally many."""
    return [
        Node(
            f"k{rack}-{number:02}",
            Location("r", "c", f"b{rack * blocks // count}", f"d{rack}"),
            gpus,
            gpus,
            rack=f"k{rack}",
        )
        for rack in range(count)
        for number in range(nodes)
    ]


def asked(groups: int, *rules: AreaRule, group_gpus: int = 16, spares: int = 0) -> Request:
    return Request(groups * group_gpus, 4, group_gpus, spares, per_area=rules)


def planned(nodes: list[Node], request: Request) -> Plan:
    answer = plan(nodes, request, "v")
    assert isinstance(answer, Plan), answer
    return answer


def refused(nodes: list[Node], request: Request) -> Refusal:
    answer = plan(nodes, request, "v")
    assert isinstance(answer, Refusal)
    return answer


def test_replicas_lie_in_different_racks_or_blocks() -> None:
    apart = planned(racks(), asked(4, AreaRule(Level.RACK, max_groups=1)))
    assert len({group.place.domain for group in apart.groups}) == 4
    answer = refused(racks(), asked(5, AreaRule(Level.RACK, max_groups=1)))
    assert (answer.level, answer.largest_groups) == (Level.RACK, 4)
    assert (
        answer.message == "5 groups of 16 GPUs would fit, but not with at most 1 group in each rack: 4 whole groups fit"
    )
    assert refused(racks(), asked(3, AreaRule(Level.BLOCK, max_groups=1))).level is Level.BLOCK


def test_a_run_uses_at_most_16_of_the_18_nodes_of_a_rack() -> None:
    rule = AreaRule(Level.RACK, max_nodes=16)
    used = {share.node for group in planned(racks(), asked(32, rule, group_gpus=8)).groups for share in group.shares}
    assert Counter(name.partition("-")[0] for name in used) == {"k0": 16, "k1": 16, "k2": 16, "k3": 16}
    assert planned(racks(), asked(36, group_gpus=8)).metrics.stranded_gpus == 0, (
        "without the rule all 72 nodes are used"
    )
    answer = refused(racks(), asked(33, rule, group_gpus=8))
    assert (answer.level, answer.largest_groups) == (Level.RACK, 32)
    assert refused(racks(1), asked(4, AreaRule(Level.DOMAIN, max_nodes=16), spares=1)).largest_groups == 3


def test_groups_of_groups_lie_in_one_area_at_each_level() -> None:
    nested = AreaRule(Level.BLOCK, multiple=3), AreaRule(Level.CLUSTER, multiple=6)
    made = planned(racks(8, 10, 4), asked(12, *nested))
    blocks = [group.place.block for group in made.groups]
    assert [len(set(blocks[first : first + 3])) for first in range(0, 12, 3)] == [1] * 4
    # A block of 10 nodes holds two groups; three need a block of two racks.
    assert refused(racks(4, 10, 4), asked(3, AreaRule(Level.BLOCK, multiple=3))).level is Level.BLOCK


def test_a_domain_without_a_known_rack_is_not_used_where_racks_have_a_rule() -> None:
    nodes = [replace(node, rack="") if node.place.domain == "d0" else node for node in racks()]
    rule = AreaRule(Level.RACK, max_groups=1)
    assert {group.place.domain for group in planned(nodes, asked(3, rule)).groups} == {"d1", "d2", "d3"}
    message = refused(nodes, asked(4, rule)).message
    assert message.endswith("1 domain lies in no single known rack, so that the run does not use it")


def test_a_malleable_run_becomes_smaller_by_whole_layers() -> None:
    request = replace(asked(12, AreaRule(Level.BLOCK, multiple=3)), malleability=Malleability(4, 16))
    assert planned(racks(4, 8, 2), request).gpus == 6 * 16


def test_a_refusal_offers_the_run_without_each_rule_that_alone_keeps_it_from_fitting() -> None:
    request = asked(5, AreaRule(Level.RACK, max_groups=1), AreaRule(Level.BLOCK, max_groups=3))
    found = changes(Inventory.from_nodes(racks()), request)
    fixes = {fix.kind: fix for fix in found.fixes}
    assert fixes[FixKind.UNRULED].sentence == "do not ask for at most 1 group in each rack"
    assert [fix.changes for fix in found.fixes if fix.kind is FixKind.UNRULED] == [{"rack": 0}]
    assert fixes[FixKind.SMALLER].changes == {"gpus": 64}


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (
            (AreaRule(Level.RACK, max_groups=1), AreaRule(Level.RACK, max_nodes=1)),
            "at most one rule for each level of areas",
        ),
        ((AreaRule(Level.BLOCK, multiple=4), AreaRule(Level.CLUSTER, multiple=6)), "do not divide into layers of 4"),
        ((AreaRule(Level.BLOCK, multiple=5),), "192 GPUs do not divide into 5 groups of 16"),
    ],
    ids=["a level twice", "layers", "sizes"],
)
def test_rules_that_contradict_each_other_are_an_error(rules: tuple[AreaRule, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        asked(12, *rules)


@pytest.mark.parametrize(
    ("level", "rule", "words"),
    [
        (Level.NODE, {}, "no level of areas"),
        (Level.RACK, {"multiple": 2}, "groups come in multiples in each block, cluster or region only"),
        (Level.RACK, {"max_nodes": 0}, "numbers of 1 to"),
    ],
    ids=["level", "rack", "number"],
)
def test_an_impossible_rule_is_an_error(level: Level, rule: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AreaRule(level, **rule)


def test_every_level_of_an_area_is_known_to_the_inventory() -> None:
    inventory = Inventory.from_nodes(racks())
    assert [len(set(inventory.areas(level).tolist())) for level in AREAS] == [4, 4, 2, 1, 1]
