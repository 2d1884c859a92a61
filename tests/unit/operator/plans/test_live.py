"""The condition Live of a plan: whether it is current, written once for each transition, by the controllers only."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from gkm.api.plans import PlanSpec
from gkm.kube.errors import ApiError
from gkm.kube.resources import PLACEMENTPLANS
from gkm.packing.conversion import groups_of
from gkm.packing.values import Group
from gkm_operator.plans.state.objects import WatchedPlan
from gkm_operator.plans.write import writer
from gkm_operator.plans.write.status import desired_plan_status, live
from msgspec import convert, structs
from support.host.waiting import until
from support.operator.plans import NAMESPACE, RAW_RUNS, PlansSite
from support.operator.plans_made import a_draft, a_run, a_stock, fleet

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
WRITE = ("apply", PLACEMENTPLANS.plural)


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    yield made
    made.controller.close()


def shown(site: PlansSite, name: str) -> tuple[str, str]:
    """Status and reason of the condition."""
    found = [plan.get("status", {}) for plan in site.plans() if plan["metadata"]["name"] == name]
    conditions = [one for status in found for one in status.get("conditions", [])]
    return next(((one["status"], one["reason"]) for one in conditions), ("", ""))


def until_live(site: PlansSite, **reasons: str) -> None:
    wanted = {name.replace("_", "-"): reason for name, reason in reasons.items()}
    until(lambda: {name: shown(site, name)[1] for name in wanted} == wanted, f"{wanted}")


def writes(site: PlansSite) -> int:
    return sum(call[:2] == WRITE for call in list(site.api.calls))


@pytest.mark.parametrize(
    ("number", "newest", "over", "expected"),
    [
        (2, 2, False, ("True", "Current")),
        (1, 2, False, ("False", "Superseded")),
        (1, 2, True, ("False", "Superseded")),
        (2, 2, True, ("False", "PlanExpired")),
    ],
)
def test_a_plan_becomes_a_condition(number: int, newest: int, over: bool, expected: tuple[str, str]) -> None:  # noqa: FBT001
    run, stock = a_run(), a_stock(*fleet())
    one, other = (a_draft(run, stock, number=number).counts, a_draft(run, stock, number=newest).counts)
    assert live(one, other, over=over)[:2] == expected


def test_an_unchanged_condition_is_equal_and_a_transition_moves_the_time() -> None:
    plan = a_draft(a_run(), a_stock(*fleet())).counts
    first = desired_plan_status(plan, plan, THEN, over=False)
    known = replace(plan, status=first)
    assert desired_plan_status(known, known, NOW, over=False) == first
    (turned,) = desired_plan_status(known, known, NOW, over=True).conditions
    assert (turned.status, turned.last_transition_time) == ("False", NOW)


def test_a_plan_is_current_until_a_newer_one_is(site: PlansSite) -> None:
    site.rack("d1", 4)
    site.ask("r", 16)
    site.controller.work()
    until_live(site, r_1="Current")
    status = site.plan("r-1")["status"]
    assert status["observedGeneration"] == status["conditions"][0]["observedGeneration"] == 1
    assert status["conditions"][0]["status"] == "True"
    site.change("r", {"spec": {"gpus": 32}})
    until_live(site, r_1="Superseded", r_2="Current")
    site.expire("r-2")
    until_live(site, r_1="Superseded", r_2="PlanExpired")
    assert shown(site, "r-2")[0] == "False"


def test_while_nothing_changes_nothing_is_written(site: PlansSite) -> None:
    site.rack("d1", 4)
    site.ask("r", 16)
    site.controller.work()
    until_live(site, r_1="Current")
    site.restart()
    before, count = site.plan("r-1"), writes(site)
    for number in range(3):
        site.ask(f"other-{number}", 4096)
        site.until(f"other-{number}", "DoesNotFit")
    site.restart()
    site.ask("last", 4096)
    site.until("last", "DoesNotFit")
    assert site.plan("r-1") == before
    assert writes(site) == count


def test_a_status_change_does_not_parse_the_groups_of_a_plan_again(
    site: PlansSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfolded: list[str] = []

    def counted(spec: PlanSpec) -> tuple[Group, ...]:
        unfolded.append(spec.run)
        return groups_of(spec)

    monkeypatch.setattr("gkm_operator.plans.state.objects.groups_of", counted)
    site.rack("d1", 4)
    site.ask("r", 16)
    site.controller.work()
    until_live(site, r_1="Current")
    site.ask("other", 4096)
    site.until("other", "DoesNotFit")
    # Once as a draft, once as the watch shows it.
    assert unfolded == ["r", "r"]


def test_a_status_that_is_refused_stops_no_other_and_is_not_sent_again_at_once(site: PlansSite) -> None:
    refused = ApiError(403, "Forbidden", "a policy denied the request")
    denied = (*WRITE, "r-1")
    site.api.fault = lambda verb, plural: refused if (verb, plural, site.api.calls[-1][2]) == denied else None
    site.rack("d1", 4)
    site.ask("r", 16)
    site.ask("s", 16)
    site.controller.work()
    until_live(site, s_1="Current")
    for number in range(3):
        site.ask(f"other-{number}", 4096)
        site.until(f"other-{number}", "DoesNotFit")
    assert site.api.calls.count(denied) == 1, "a refused status is sent in every pass"


def test_a_refused_status_write_delays_no_plan(site: PlansSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.0)
    refused = ApiError(403, "Forbidden", "no right to the status of plans")
    site.api.fault = lambda verb, plural: refused if (verb, plural) == WRITE else None
    site.rack("d1", 4)
    site.ask("r", 16)
    site.ask("s", 16)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.until("s", "Planned", "s-1")
    assert shown(site, "r-1") == ("", "")
    site.api.fault = lambda _verb, _plural: None
    site.ask("other", 4096)
    until_live(site, r_1="Current", s_1="Current")


def test_one_pass_writes_the_status_of_few_plans(site: PlansSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_PLAN_STATUSES", 2)
    site.rack("d1", 4)
    names = [f"r{number}" for number in range(7)]
    for name in names:
        site.ask(name, 4, gpusPerPod=4)
    site.controller.work()
    until_live(site, **{f"{name}_1": "Current" for name in names})


def test_the_plan_of_a_deleted_run_gets_no_status(site: PlansSite) -> None:
    site.rack("d1", 4)
    site.ask("r", 16)
    site.controller.work()
    until_live(site, r_1="Current")
    site.api.delete(RAW_RUNS, "r", NAMESPACE)
    site.ask("other", 4096)
    site.until("other", "DoesNotFit")
    assert shown(site, "r-1") == ("True", "Current")


def test_a_status_change_of_a_plan_changes_no_decision() -> None:
    draft = a_draft(a_run(), a_stock(*fleet()))
    plan = convert(dict(draft.value), WatchedPlan)
    moved = structs.replace(plan, metadata=structs.replace(plan.metadata, resource_version="9"))
    status = desired_plan_status(draft.counts, draft.counts, NOW, over=False)
    orphaned = structs.replace(plan.metadata, owner_references=())
    assert plan.is_equal_but_status(structs.replace(moved, status=status))
    assert not plan.is_equal_but_status(structs.replace(plan, metadata=orphaned))
    assert not plan.is_equal_but_status(structs.replace(plan, spec=structs.replace(plan.spec, expires_at=NOW)))
