"""A draft of a plan: its owner, its size, and the record that it parses into."""

import msgspec
import pytest
from gkm.api.topology_settings import Packing
from gkm.packing.inventory import Inventory
from gkm.packing.usable_nodes import UsableNodes, version
from gkm.packing.values import Location, Node, Refusal
from gkm.topology.eligibility import NodeDemand
from gkm_operator.plans.planning import draft as planning
from gkm_operator.plans.planning.draft import FoundPlan, PlanOccasion, find_plan, make_draft, sizes
from gkm_operator.plans.planning.refusals import PlanReason, Unfit, unfit
from gkm_operator.plans.state.free_capacity import FreeCapacity, FreeGpus, PodUsageIndex, Reservations
from gkm_operator.plans.state.objects import PlanIndex, RunKey, WatchedPlan, parse_plan
from support.operator.plans import claims
from support.operator.plans_made import NOW, a_draft, a_pod, a_run, a_stock, a_survey, fleet, irregular

TEAM = RunKey("team", "r")


def stock_of(nodes: list[Node]) -> FreeGpus:
    return FreeGpus(UsableNodes(tuple(nodes), version(nodes)), Inventory.from_nodes(nodes))


@pytest.mark.parametrize("names", ["irregular", "numbered"])
def test_a_plan_of_ten_thousand_nodes_takes_less_than_half_a_megabyte(names: str) -> None:
    nodes = list(irregular(10_000))
    if names == "numbered":
        nodes = [
            Node(f"gpu-{at:05}", Location("r", "c", f"b{at // 512}", f"d{at // 16}"), 8, 8) for at in range(10_000)
        ]
    sent = a_draft(a_run(gpus=80_000, groupGPUs=128), stock_of(nodes))
    assert sum(sent.counts.claims.values()) == 80_000
    assert len(msgspec.json.encode(sent.value)) < 500_000


def test_a_plan_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_BYTES", 500)
    one, stock = a_run(), a_stock(*fleet())
    found = find_plan(stock, sizes(one, Packing()))  # type: ignore[arg-type]
    assert isinstance(found, FoundPlan)
    refused = make_draft(one, found, stock, Packing(), PlanOccasion(1, NOW))
    assert isinstance(refused, Unfit)
    assert refused.reason == PlanReason.TOO_LARGE


def test_a_draft_parses_into_its_own_record() -> None:
    sent = a_draft(a_run(), a_stock(*fleet()))
    read = parse_plan(msgspec.convert(sent.value, WatchedPlan))
    assert read == sent.counts
    assert read is not None
    assert dict(claims(sent.value)) == read.claims
    assert sent.value["spec"]["expiresAt"] == "2026-03-01T12:15:00Z"


def test_a_plan_with_a_foreign_name_or_invalid_content_is_ignored() -> None:
    sent = msgspec.to_builtins(a_draft(a_run(), a_stock(*fleet())).value)
    other = sent | {"metadata": sent["metadata"] | {"name": "r-7"}}
    assert parse_plan(msgspec.convert(other, WatchedPlan)) is None
    torn = sent | {"spec": sent["spec"] | {"groups": [sent["spec"]["groups"][0] | {"domain": "d", "gpus": 1000}]}}
    book = PlanIndex()
    book.change(None, msgspec.convert(torn, WatchedPlan))
    assert book.plans() == {}
    assert book.last_number(TEAM) == 1


def test_a_plan_counts_from_before_its_creation_until_the_watch_reports_it_deleted() -> None:
    sent, book = a_draft(a_run(), a_stock(*fleet())), PlanIndex()
    book.add_unconfirmed(sent.counts)
    assert book.plans() == {TEAM: [sent.counts]}
    shown = msgspec.convert(sent.value, WatchedPlan)
    book.change(None, shown)
    assert not book.is_unconfirmed(sent.counts)
    assert book.plans() == {TEAM: [sent.counts]}
    book.change(shown, None)
    assert book.plans() == {}


def test_numbers_of_other_runs_are_not_counted() -> None:
    book = PlanIndex()
    for name in ("r", "r-1", "rr"):
        book.add_unconfirmed(a_draft(a_run(name), a_stock(*fleet()), number=7 if name != "r" else 2).counts)
    assert book.last_number(TEAM) == 2
    assert book.last_number(RunKey("other", "r")) == 0


def test_sizes_that_do_not_divide_are_refused_with_a_reason() -> None:
    wrong = sizes(a_run(gpus=12), Packing())
    assert isinstance(wrong, Unfit)
    assert wrong.reason == PlanReason.INVALID_REQUEST


def test_gpus_of_a_new_plan_are_not_free_for_later_runs_of_the_pass() -> None:
    room = FreeCapacity(a_survey(*fleet()), PodUsageIndex().usage(), Reservations({}))
    one, other = RunKey("team", "a"), RunKey("team", "b")
    before = room.free_for(one, NodeDemand("h100"), alone=False)
    room.record_plan(one, {"d0-n0": 8, "d0-n1": 4, "not-ours": 8})
    after = room.free_for(other, NodeDemand("h100"), alone=False)
    assert {node.name: node.free for node in after.inventory.nodes} == {
        "d0-n0": 0,
        "d0-n1": 4,
        "d1-n0": 8,
        "d1-n1": 8,
    }
    assert after.version == version(after.inventory.nodes) != before.version
    assert room.free_for(one, NodeDemand("h100"), alone=True).version == before.version


def test_own_pods_and_reservations_count_as_free() -> None:
    ledger = PodUsageIndex()
    ledger.change(None, a_pod("p", "d0-n0", 8, "r"))
    ledger.change(None, a_pod("q", "d0-n1", 8))
    room = FreeCapacity(a_survey(*fleet(1)), ledger.usage(), Reservations({TEAM: {"d0-n0": 0}}))
    own = room.free_for(TEAM, NodeDemand("h100"), alone=True)
    assert {node.name: node.free for node in own.inventory.nodes} == {"d0-n0": 8, "d0-n1": 0}
    stays = Node("lost", Location("r", "c", "b", "d"), 8, 8)
    assert "lost" in room.free_for(TEAM, NodeDemand("h100"), (stays,), alone=True).inventory.numbers


def test_a_retained_node_has_the_rack_of_its_domain_or_is_one_by_itself() -> None:
    nodes = fleet(1)
    for node in nodes:
        node["metadata"]["labels"]["topology.kubernetes.io/rack"] = "k1"
    survey = a_survey(*nodes)
    place, rack = survey.located[0].location, survey.located[0].rack
    retained = (Node("near", place, 8, 8), Node("alone", place._replace(domain="gone"), 8, 8))
    room = FreeCapacity(survey, PodUsageIndex().usage(), Reservations({}))
    free = room.free_for(TEAM, NodeDemand("h100"), retained, alone=True).inventory
    assert rack.endswith("k1")
    assert {node.name: node.rack for node in free.nodes if node.name in {"near", "alone"}} == {
        "near": rack,
        "alone": "/".join((*place[:3], "gone")),
    }


def test_a_refusal_without_usable_nodes_counts_the_reasons() -> None:
    nodes = fleet(1)
    for node in nodes:
        node["spec"] = {"unschedulable": True}
    survey = a_survey(*nodes)
    usable = FreeCapacity(survey, PodUsageIndex().usage(), Reservations({})).free_for(
        TEAM, NodeDemand("H100"), alone=False
    )
    refusal = find_plan(usable, sizes(a_run(), Packing()))  # type: ignore[arg-type]
    assert isinstance(refusal, Refusal)
    said = unfit(refusal, usable.usable, survey, "H100")
    assert said.message == "0 of 2 nodes of flavor h100 can be used: 2 Cordoned"


def test_an_invalid_former_plan_is_ignored() -> None:
    stock, asked = a_stock(*fleet()), sizes(a_run(), Packing())
    assert not isinstance(asked, Unfit)
    first = find_plan(stock, asked)
    assert isinstance(first, FoundPlan)
    twice = (first.plan.groups[0], first.plan.groups[0])
    assert find_plan(stock, asked, twice) == FoundPlan(first.plan)
