"""Runs made to delay others: each gets a result, and caches do not wait for them."""

from collections.abc import Iterator
from typing import Any

import pytest
from gkm_operator.plans import planner
from gkm_operator.plans.planning import draft as planning
from support.host.waiting import until
from support.operator.controller import Site
from support.operator.plans import RAW_RUNS, PlansSite, everything
from support.operator.plans_made import a_run

MANY = 500
"""Runs; a pass of the planner writes fifty refusals, and rests as long as it worked."""
HUGE: list[dict[str, Any]] = [
    {"gpus": 1_000_000, "gpusPerPod": 1, "groupGPUs": 1},
    {"gpus": 1_000_000, "gpusPerPod": 1, "groupGPUs": 1, "spares": 1024},
    {"gpus": 1_000_000, "gpusPerPod": 1, "groupGPUs": 999_999, "spares": 1024, "policy": "least-waste"},
    {"gpus": 1_000_000, "gpusPerPod": 1_000_000, "groupGPUs": 1_000_000},
    {"gpus": 1_000_000, "gpusPerPod": 1, "groupGPUs": 3, "malleability": {"stepGPUs": 1, "minGPUs": 999_000}},
    {"gpus": 999_999, "gpusPerPod": 1, "groupGPUs": 7, "allowCrossGroupSpread": False},
    {
        "gpus": 1_000_000,
        "gpusPerPod": 1,
        "groupGPUs": 2,
        "scopes": [{"name": f"s{number}", "maxGPUs": 1000 + number} for number in range(16)],
    },
    {"gpus": 13, "gpusPerPod": 8, "groupGPUs": 8},
    {"gpus": 16, "scopes": [{"name": "s", "maxGPUs": 1}, {"name": "s", "maxGPUs": 2}]},
    {"gpus": 16, "selector": {"labels": {f"l{number}": "x" * 63 for number in range(32)}}},
]


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    yield made
    made.controller.close()


def answers(site: PlansSite) -> list[str]:
    """The reasons of all Runs that have one."""
    found = (run.get("status", {}).get("conditions") for run in everything(site.api, RAW_RUNS))
    return [conditions[0]["reason"] for conditions in found if conditions]


def test_runs_of_impossible_sizes_are_refused_and_the_next_run_is_planned(site: PlansSite) -> None:
    for domain in range(4):
        site.rack(f"d{domain}")
    for number, spec in enumerate(HUGE):
        site.ask(f"huge-{number}", **({"groupGPUs": 8} | spec), priority=1)
    site.ask("small", 16)
    site.controller.work()
    site.until("small", "Planned")
    until(lambda: len(answers(site)) == len(HUGE) + 1, "every run has its answer")
    assert set(answers(site)) <= {"Planned", "DoesNotFit", "OutsideScopes", "TooLarge", "InvalidRequest"}
    assert site.planned("huge-7")[1] == "InvalidRequest"
    assert site.planned("huge-8")[1] == "InvalidRequest"


def test_many_runs_do_not_delay_caches(site: PlansSite) -> None:
    caches = Site()
    caches.api = site.api
    caches.controller = caches.new()
    for domain in range(25):
        site.rack(f"d{domain}")
    for number in range(MANY):
        site.ask(f"r{number}", 16, selector={"labels": {"gpu.flavor": "H100"}} if number % 2 else {})
    site.controller.work()
    try:
        caches.create()
        caches.run()
        caches.until_verified()
        until(lambda: len(answers(site)) == MANY, "every run has its answer", 240)
    finally:
        caches.stop.set()
        caches.controller.close()
    assert answers(site).count("Planned") == 25 * 4 // 2


def test_a_run_for_which_the_planner_fails_is_refused_and_others_are_planned(
    site: PlansSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = planning.find_plan

    def failing(stock: Any, request: Any, former: Any = ()) -> Any:  # noqa: ANN401 -- as the planner has it
        if request.gpus == 24:
            raise ZeroDivisionError("a mistake")
        return original(stock, request, former)

    monkeypatch.setattr(planner, "find_plan", failing)
    site.rack("d1")
    site.ask("bad", 24, groupGPUs=8, priority=9)
    site.ask("good", 16)
    site.controller.work()
    site.until("good", "Planned")
    site.until("bad", "PlannerFailed")
    assert "planner failed for a Run, the other Runs are planned" in caplog.messages


def test_a_refused_run_is_not_searched_again_while_nothing_changes(
    site: PlansSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[int] = []
    original = planning.find_plan

    def counting(stock: Any, request: Any, former: Any = ()) -> Any:  # noqa: ANN401 -- as the planner has it
        asked_for.append(request.gpus)
        return original(stock, request, former)

    monkeypatch.setattr(planner, "find_plan", counting)
    site.rack("d1", 1)
    site.ask("r", 32)
    site.controller.work()
    site.until("r", "DoesNotFit")
    site.rack("other", 1, gpu__flavor="gb200")
    site.pod("p", "other-n0", 8)
    site.ask("s", 48)
    site.until("s", "DoesNotFit")
    assert asked_for == [32, 48]
    assert a_run().request_hash == a_run("s").request_hash
