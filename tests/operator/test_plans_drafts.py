"""A plan as it is sent: whose it is, how large it is, and that it reads as what it counts."""

import msgspec
import pytest
from gkm.api.topology_settings import Packing
from gkm.packing.inventory import Inventory
from gkm.packing.inventory_of import Usable, version
from gkm.packing.values import Node, Place, Refusal
from gkm.topology.eligibility import Demand
from gkm_operator.plans import planning
from gkm_operator.plans.book import Book, made
from gkm_operator.plans.ledger import Ledger
from gkm_operator.plans.objects import RunKey, WatchedPlan
from gkm_operator.plans.planning import Fits, Occasion, draft, fit, sizes
from gkm_operator.plans.room import Held, Room, Stock
from gkm_operator.plans.wording import Reason, Unfit, unfit
from operator_plans import claims
from operator_plans_made import NOW, a_draft, a_pod, a_run, a_stock, a_survey, fleet, irregular

TEAM = RunKey("team", "r")


def stock_of(nodes: list[Node]) -> Stock:
    return Stock(Usable(tuple(nodes), version(nodes)), Inventory.from_nodes(nodes))


@pytest.mark.parametrize("names", ["irregular", "numbered"])
def test_a_plan_of_ten_thousand_nodes_takes_less_than_half_a_megabyte(names: str) -> None:
    nodes = list(irregular(10_000))
    if names == "numbered":
        nodes = [Node(f"gpu-{at:05}", Place("r", "c", f"b{at // 512}", f"d{at // 16}"), 8, 8) for at in range(10_000)]
    sent = a_draft(a_run(gpus=80_000, groupGPUs=128), stock_of(nodes))
    assert sum(sent.counts.claims.values()) == 80_000
    assert len(msgspec.json.encode(sent.value)) < 500_000


def test_a_plan_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_BYTES", 500)
    one, stock = a_run(), a_stock(*fleet())
    found = fit(stock, sizes(one, Packing()))  # type: ignore[arg-type]
    assert isinstance(found, Fits)
    refused = draft(one, found, stock, Packing(), Occasion(1, NOW))
    assert isinstance(refused, Unfit)
    assert refused.reason == Reason.TOO_LARGE


def test_what_is_sent_reads_as_what_it_counts_as() -> None:
    sent = a_draft(a_run(), a_stock(*fleet()))
    read = made(msgspec.convert(sent.value, WatchedPlan))
    assert read == sent.counts
    assert read is not None
    assert dict(claims(sent.value)) == read.claims
    assert sent.value["spec"]["expiresAt"] == "2026-03-01T12:15:00Z"


def test_a_plan_that_is_not_named_as_ours_or_cannot_be_read_counts_for_nothing() -> None:
    sent = msgspec.to_builtins(a_draft(a_run(), a_stock(*fleet())).value)
    other = sent | {"metadata": sent["metadata"] | {"name": "r-7"}}
    assert made(msgspec.convert(other, WatchedPlan)) is None
    torn = sent | {"spec": sent["spec"] | {"groups": [sent["spec"]["groups"][0] | {"domain": "d", "gpus": 1000}]}}
    book = Book()
    book.change(None, msgspec.convert(torn, WatchedPlan))
    assert book.plans() == {}
    assert book.last_number(TEAM) == 1


def test_a_plan_counts_from_before_it_is_sent_until_the_watch_tells_otherwise() -> None:
    sent, book = a_draft(a_run(), a_stock(*fleet())), Book()
    book.sending(sent.counts)
    assert book.plans() == {TEAM: [sent.counts]}
    shown = msgspec.convert(sent.value, WatchedPlan)
    book.change(None, shown)
    assert not book.waits_for(sent.counts)
    assert book.plans() == {TEAM: [sent.counts]}
    book.change(shown, None)
    assert book.plans() == {}


def test_numbers_of_other_runs_are_not_counted() -> None:
    book = Book()
    for name in ("r", "r-1", "rr"):
        book.sending(a_draft(a_run(name), a_stock(*fleet()), number=7 if name != "r" else 2).counts)
    assert book.last_number(TEAM) == 2
    assert book.last_number(RunKey("other", "r")) == 0


def test_sizes_that_do_not_divide_are_told() -> None:
    wrong = sizes(a_run(gpus=12), Packing())
    assert isinstance(wrong, Unfit)
    assert wrong.reason == Reason.INVALID_REQUEST


def test_within_a_sweep_what_one_run_takes_another_does_not_get() -> None:
    room = Room(a_survey(*fleet()), Ledger().taken(), Held({}))
    one, other = RunKey("team", "a"), RunKey("team", "b")
    before = room.stock(one, Demand("h100"), alone=False)
    room.took(one, {"d0-n0": 8, "d0-n1": 4, "not-ours": 8})
    after = room.stock(other, Demand("h100"), alone=False)
    assert {node.name: node.free for node in after.inventory.nodes} == {
        "d0-n0": 0,
        "d0-n1": 4,
        "d1-n0": 8,
        "d1-n1": 8,
    }
    assert after.version == version(after.inventory.nodes) != before.version
    assert room.stock(one, Demand("h100"), alone=True).version == before.version


def test_a_run_has_its_own_pods_and_what_is_held_for_it() -> None:
    ledger = Ledger()
    ledger.change(None, a_pod("p", "d0-n0", 8, "r"))
    ledger.change(None, a_pod("q", "d0-n1", 8))
    room = Room(a_survey(*fleet(1)), ledger.taken(), Held({TEAM: {"d0-n0": 0}}))
    own = room.stock(TEAM, Demand("h100"), alone=True)
    assert {node.name: node.free for node in own.inventory.nodes} == {"d0-n0": 8, "d0-n1": 0}
    stays = Node("lost", Place("r", "c", "b", "d"), 8, 8)
    assert "lost" in room.stock(TEAM, Demand("h100"), (stays,), alone=True).inventory.numbers


def test_why_a_run_finds_no_node_is_told_by_what_became_of_them() -> None:
    nodes = fleet(1)
    for node in nodes:
        node["spec"] = {"unschedulable": True}
    survey = a_survey(*nodes)
    usable = Room(survey, Ledger().taken(), Held({})).stock(TEAM, Demand("H100"), alone=False)
    refusal = fit(usable, sizes(a_run(), Packing()))  # type: ignore[arg-type]
    assert isinstance(refusal, Refusal)
    said = unfit(refusal, usable.usable, survey, {}, "H100")
    assert said.message == "0 of 2 nodes of flavor h100 can be used: 2 Cordoned"


def test_a_former_plan_that_can_be_none_is_planned_afresh() -> None:
    stock, asked = a_stock(*fleet()), sizes(a_run(), Packing())
    assert not isinstance(asked, Unfit)
    first = fit(stock, asked)
    assert isinstance(first, Fits)
    twice = (first.plan.groups[0], first.plan.groups[0])
    assert fit(stock, asked, twice) == Fits(first.plan)
