"""A planner that breaks its own rules gives an error and no plan."""

from collections.abc import Callable
from dataclasses import replace

import gkm.packing.plan as planner
import gkm.packing.replanning.replan as replanner
import pytest
from gkm.packing.inventory import Inventory
from gkm.packing.nodes.assembly import assemble
from gkm.packing.replanning.values import Standing
from gkm.packing.self_check import InvalidPlanError, verify
from gkm.packing.values import Ceiling, Distance, Group, Location, Node, Plan, Request, Share, Spare

PLACE = Location("r", "c", "b", "d")
NODES = [Node(f"n{number}", PLACE, 8, 8, frozenset({"s"})) for number in range(4)]
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
    "an unknown node": (lambda groups: first(groups, nodes=(Share("x", 8),)), "8 GPUs of node x, which has 0 free"),
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


def test_a_new_plan_after_a_loss_is_checked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = planner.plan(NODES, WITHOUT_SPARES, "v")
    assert isinstance(standing, Plan)
    whole = replanner._group
    monkeypatch.setattr(replanner, "_group", lambda *arguments: replace(whole(*arguments), gpus=1))
    with pytest.raises(InvalidPlanError, match="3 GPUs instead of 24"):
        replanner.replan(NODES[1:], Standing(standing.groups), WITHOUT_SPARES, "v")
