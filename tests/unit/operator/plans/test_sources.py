"""Runs are planned with what the sources of the schedulers' tree say, as soon as it is approved."""

from collections.abc import Iterator

import pytest
from gkm.topology.placements import Placements
from gkm.topology.trees.merge import Named
from support.host.waiting import until
from support.operator.plans import RAW_PLANS, PlansSite, claims, everything

LEVELS = "topology:\n  levels: [{name: nvlink}, {name: leaf}, {name: spine}, {name: cluster}, {name: region}]\n"


def cables(**spines: str) -> Named:
    """Return sources whose cables lead each node to a leaf and a spine, and whose labels say nothing."""
    places = {name.replace("_", "-"): ("", f"leaf-{spine}", spine, "", "") for name, spine in spines.items()}
    return [("infiniband", Placements(places)), ("labels", Placements())]


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite(LEVELS)
    made.rack("d0", 2)
    made.rack("d1", 2)
    yield made
    made.controller.close()


def started(site: PlansSite, sources: Named | None) -> None:
    site.sources = lambda: sources
    site.controller = site.new()
    site.controller.work()


def test_a_run_within_a_block_stays_below_one_spine(site: PlansSite) -> None:
    started(site, cables(d0_n0="s0", d0_n1="s0", d1_n0="s1", d1_n1="s1"))
    site.ask("r", 32, within="block")
    site.until("r", "DoesNotFit")
    assert "block" in site.planned("r")[2]


def test_the_groups_of_a_plan_name_the_spine_as_their_block(site: PlansSite) -> None:
    started(site, cables(d0_n0="s7", d0_n1="s7", d1_n0="s7", d1_n1="s7"))
    site.ask("r", 32)
    site.until("r", "Planned", "r-1")
    assert {group["block"] for group in site.plan("r-1")["spec"]["groups"]} == {"s7"}


def test_nothing_is_planned_before_a_tree_is_approved(site: PlansSite) -> None:
    found: list[Named] = []
    site.sources = lambda: found[0] if found else None
    site.controller = site.new()
    site.controller.work()
    site.ask("r", 16)
    until(site.controller.watcher._pods.synced.is_set, "nodes and pods are listed")
    assert everything(site.api, RAW_PLANS) == []
    found.append(cables(d0_n0="s0", d0_n1="s0"))
    site.controller.wake()
    site.until("r", "Planned", "r-1")


def test_a_node_that_is_newer_than_the_tree_is_where_its_labels_place_it(site: PlansSite) -> None:
    started(site, cables())
    site.ask("r", 32)
    site.until("r", "Planned", "r-1")
    assert sum(claims(site.plan("r-1")).values()) == 32
    assert {group["domain"] for group in site.plan("r-1")["spec"]["groups"]} == {"d0", "d1"}
