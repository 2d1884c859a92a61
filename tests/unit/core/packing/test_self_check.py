"""A planner that breaks its own rules gives an error and no plan."""

from collections.abc import Callable
from dataclasses import replace

import gkm.packing.plan as planner
import gkm.packing.replanning.replan as replanner
import pytest
from gkm.packing.inventory import Inventory
from gkm.packing.nodes.assembly import assemble
from gkm.packing.self_check import InvalidPlanError, verify
from gkm.packing.values import Ceiling, Distance, FormerPlan, Group, Location, Node, Plan, Request, Share, Spare, Within

PLACE = Location("r", "c", "b", "d")
NODES = [
    *(Node(f"n{number}", PLACE, 8, 8, frozenset({"s"})) for number in range(4)),
    Node("unpaid", PLACE, 8, 8),
    Node("far", Location("r", "c", "b2", "e"), 8, 8, frozenset({"s"})),
]
WITHOUT_SPARES = Request(24, 8, 8, ceilings=(Ceiling("s", 24),))

Groups = tuple[Group, ...]
Fault = Callable[[Groups], Groups]


def first(groups: Groups, **changes: object) -> Groups:
    return (replace(groups[0], **changes), *groups[1:])  # type: ignore[arg-type] # each fault names its own field


FAULTS: dict[str, tuple[Fault, str]] = {
    "a group too many": (lambda groups: (*groups, replace(groups[2], index=3)), "4 groups instead of 3"),
    "a group too few": (lambda groups: groups[:2], "2 groups instead of 3"),
    "one number twice": (lambda groups: (groups[0], replace(groups[1], index=0), groups[2]), "twice or out of order"),
    "too few GPUs": (lambda groups: first(groups, gpus=4, nodes=(Share("n0", 4),)), "20 GPUs instead of 24"),
    "nodes give another sum": (lambda groups: first(groups, nodes=(Share("n0", 7),)), "its nodes give 7"),
    "a node that is taken twice": (lambda groups: first(groups, nodes=groups[1].nodes), "16 GPUs of node n1"),
    "an unknown node": (lambda groups: first(groups, nodes=(Share("x", 8),)), "8 GPUs of node x, which is not there"),
    "groups of other sizes": (
        lambda groups: (
            replace(groups[0], gpus=4, nodes=(Share("n0", 4),)),
            replace(groups[1], gpus=12, nodes=(Share("n0", 4), Share("n1", 8))),
            groups[2],
        ),
        "not 3 of its groups have 8 GPUs",
    ),
    "parts of pods": (
        lambda groups: first(groups, nodes=(Share("n0", 4), Share("n3", 4))),
        "group 0 takes 4 GPUs of node n0, and pods have 8",
    ),
    "another region": (lambda groups: first(groups, place=PLACE._replace(region="x")), "lies in x/c/b/d, and its node"),
    "another cluster": (lambda groups: first(groups, place=PLACE._replace(cluster="x")), "lies in r/x/b/d, and its"),
    "another block": (lambda groups: first(groups, place=PLACE._replace(block="x")), "lies in r/c/x/d, and its node"),
    "another domain": (lambda groups: first(groups, place=PLACE._replace(domain="x")), "lies in r/c/b/x, and its node"),
    "a node of another domain": (
        lambda groups: first(groups, nodes=(Share("far", 8),)),
        "group 0 lies in r/c/b/d, and its node far in r/c/b2/e",
    ),
    "a node outside the scope": (
        lambda groups: first(groups, nodes=(Share("unpaid", 8),)),
        "group 0 belongs to scope s, which node unpaid is not in",
    ),
    "no scope": (lambda groups: first(groups, scope=""), "lies in scope '', which the run does not have"),
    "another scope": (lambda groups: first(groups, scope="t"), "lies in scope 't', which the run does not have"),
    "a spare that the run does not have": (
        lambda groups: first(groups, spares=(Spare("n3", 8, PLACE, Distance.DOMAIN),)),
        "1 spare instead of 0",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_plan_is_an_error_that_names_the_sum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, text = FAULTS[name]
    monkeypatch.setattr(planner, "assemble", lambda *arguments: fault(assemble(*arguments) or ()))
    with pytest.raises(InvalidPlanError, match=text):
        planner.plan(NODES, WITHOUT_SPARES, "v")


def test_a_ceiling_counts_spares_as_well_as_groups() -> None:
    request = replace(WITHOUT_SPARES, gpus=16, spares=1, ceilings=(Ceiling("s", 32),))
    answer = planner.plan(NODES, request, "v")
    assert isinstance(answer, Plan)
    strict = replace(request, ceilings=(Ceiling("s", 31),))
    with pytest.raises(InvalidPlanError, match="scope s gives 32 GPUs and has a ceiling of 31"):
        verify(Inventory.from_nodes(NODES), strict, answer.groups)


SPARES: dict[str, tuple[Spare, str]] = {
    "another domain": (Spare("far", 8, PLACE, Distance.DOMAIN), "a spare of group 0 lies in r/c/b/d, and its node far"),
    "outside the scope": (Spare("unpaid", 8, PLACE, Distance.DOMAIN), "a spare of group 0 belongs to scope s, which"),
    "an unknown node": (Spare("x", 8, PLACE, Distance.DOMAIN), "8 GPUs of node x, which is not there"),
    "no pod": (Spare("n3", 4, PLACE, Distance.DOMAIN), "a spare of group 0 takes 4 GPUs of node n3, and pods have 8"),
}


@pytest.mark.parametrize("name", SPARES)
def test_a_spare_lies_where_it_says_and_in_the_scope_of_its_group(name: str) -> None:
    spare, text = SPARES[name]
    request = replace(WITHOUT_SPARES, gpus=8, spares=1)
    group = Group(0, 8, PLACE, "s", (Share("n0", 8),), (Spare("n1", 8, PLACE, Distance.DOMAIN),))
    verify(Inventory.from_nodes(NODES), request, (group,))
    with pytest.raises(InvalidPlanError, match=text):
        verify(Inventory.from_nodes(NODES), request, (replace(group, spares=(spare,)),))


@pytest.mark.parametrize(
    ("strict", "text"),
    [
        pytest.param({"may_spread": False}, "in 2 domains, and the run must stay in one", id="one domain"),
        pytest.param({"within": Within.BLOCK}, "in 2 blocks, and the run must stay in one", id="one block"),
        pytest.param({"balanced": True}, "have 1 to 2 groups, and all must have as many", id="equal shares"),
    ],
)
def test_a_plan_stays_in_its_area_and_in_equal_shares(strict: dict[str, object], text: str) -> None:
    inventory = Inventory.from_nodes(NODES)
    places = {"n0": PLACE, "n1": PLACE, "far": NODES[-1].place}
    groups = [Group(at, 8, place, "s", (Share(name, 8),)) for at, (name, place) in enumerate(places.items())]
    verify(inventory, WITHOUT_SPARES, groups)
    verify(inventory, replace(WITHOUT_SPARES, within=Within.CLUSTER), groups)
    with pytest.raises(InvalidPlanError, match=text):
        verify(inventory, replace(WITHOUT_SPARES, **strict), groups)  # type: ignore[arg-type] # each names its own field


def test_a_spare_stays_in_the_area_of_its_run() -> None:
    request = Request(8, 8, 8, spares=1, within=Within.BLOCK)
    spare = Spare("far", 8, NODES[-1].place, Distance.CLUSTER)
    with pytest.raises(InvalidPlanError, match="in 2 blocks, and the run must stay in one"):
        verify(Inventory.from_nodes(NODES), request, (Group(0, 8, PLACE, "", (Share("n0", 8),), (spare,)),))


def test_a_new_plan_after_a_loss_is_checked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = planner.plan(NODES, WITHOUT_SPARES, "v")
    assert isinstance(standing, Plan)
    whole = replanner._group
    monkeypatch.setattr(replanner, "_group", lambda *arguments: replace(whole(*arguments), gpus=1))
    with pytest.raises(InvalidPlanError, match="3 GPUs instead of 24"):
        replanner.replan(NODES[1:], FormerPlan(standing.groups), WITHOUT_SPARES, "v")
