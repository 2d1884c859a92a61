"""After any crash or lost response, no GPU is allocated twice, and every run gets a result."""

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from gkm.api.config import Config
from gkm.kube.errors import ApiError
from gkm.kube.resources import NODES
from gkm_operator.plans.controller import PlansController
from gkm_operator.plans.state.node_loss import GracePeriod
from support.host.waiting import until
from support.operator.plans import NAMESPACE, RAW_RUNS, PlansSite, claims, everything, gpu_node, run
from support.operator.plans_chaos import Process, Witness, judged

RUNS = 8


def controller(api: Any) -> PlansController:  # noqa: ANN401 -- an Api
    return PlansController(api, Config(), calm=0.001, pause=0.001, grace=GracePeriod(0.0))


def answered(api: Witness) -> bool:
    """Every Run has a condition."""
    return all(one.get("status", {}).get("conditions") for one in everything(api, RAW_RUNS))


def disturb(api: Witness, chance: random.Random, step: int) -> None:
    """Do what people and machines do."""
    there = [one["metadata"]["name"] for one in everything(api, RAW_RUNS)]
    what = chance.randrange(5)
    if what == 0 and there:
        api.delete(RAW_RUNS, chance.choice(there), NAMESPACE)
    elif what == 1 and there:
        again = {"metadata": {"annotations": {"gkm.io/plan-again": str(step)}}}
        api.merge(RAW_RUNS, chance.choice(there), again, NAMESPACE)
    elif what == 2:
        node = f"n{chance.randrange(8)}"
        api.merge(NODES, node, {"spec": {"unschedulable": chance.random() < 0.5}})
    elif what == 3 and there:
        api.merge(RAW_RUNS, chance.choice(there), {"spec": {"gpus": 8 * chance.randint(1, 4)}}, NAMESPACE)
    else:
        api.create(RAW_RUNS, run(f"r{step}", 8 * chance.randint(1, 3), priority=chance.randint(0, 2)))


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    """What was killed here ends here: its threads draw random pauses, and other tests do not like that beside them."""
    before = set(threading.enumerate())
    yield
    until(lambda: not set(threading.enumerate()) - before, "all threads to end")


ENOUGH = 10
"""Plans: with fewer, nothing was tried."""


def ended(working: PlansController) -> None:
    """Wait for the thread, which a slow machine lets end late: it must not be killed in the next test."""
    until(lambda: not working._thread.is_alive(), "the thread to end")


@pytest.mark.parametrize("seed", range(12))
def test_killed_processes_and_lost_responses_allocate_no_gpu_twice(seed: int) -> None:
    chance, api = random.Random(seed), Witness()
    for number in range(8):
        api.create(NODES, gpu_node(f"n{number}", f"d{number // 2}"))
        api.apply(NODES, gpu_node(f"n{number}", f"d{number // 2}"), field_manager="test", subresource="status")
    deaths = 0
    with pytest.MonkeyPatch.context() as patch:
        # A killed thread prints its exception, which is expected here.
        patch.setattr("threading.excepthook", lambda _args: None)
        for step in range(300):
            # On a slow machine processes die before they have made much.
            if step >= 30 and deaths and api.made > ENOUGH:
                break
            process = Process(api, chance, deaths=0.05, losses=0.1)
            working = controller(process)
            working.work()
            for number in range(3):
                disturb(api, chance, 3 * step + number)
                # After a random time, so that it dies at any point.
                time.sleep(chance.random() * 0.03)
            working.close()
            ended(working)
            deaths += process.dead
    last = controller(api)
    last.work()
    try:
        until(lambda: answered(api), "every run has its answer")
    finally:
        last.close()
    assert api.twice == []
    assert judged(api) == []
    assert deaths > 0
    assert api.made > ENOUGH


def test_a_create_with_a_lost_response_is_repeated_before_other_runs_are_planned() -> None:
    site = PlansSite()
    site.rack("d1", 2)
    site.ask("r", 16)
    site.ask("s", 16)
    original = site.api.create
    lost: list[str] = []

    def create(resource: Any, value: Any, **options: Any) -> Any:  # noqa: ANN401 -- as the API has it
        answer = original(resource, value, **options)
        if resource.plural == "placementplans" and not lost:
            lost.append(value["metadata"]["name"])
            raise ApiError(504, "Timeout", "the answer was lost")
        return answer

    site.api.create = create  # type: ignore[method-assign]
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.until("s", "DoesNotFit")
    site.controller.close()
    assert lost == ["r-1"]
    assert [plan["metadata"]["name"] for plan in site.plans()] == ["r-1"]


def test_a_replica_without_the_lease_writes_nothing() -> None:
    site = PlansSite()
    site.rack("d1", 2)
    site.ask("r", 16)
    site.leads = False
    site.controller.work()
    until(lambda: not site.controller._thread.is_alive(), "it ends")
    site.controller.close()
    assert [
        call for call in site.api.calls if call[0] in {"create", "apply", "delete"} and call[1] == "placementplans"
    ] == []
    assert site.planned("r") == ("", "", "")


def test_of_two_plans_with_the_same_gpus_the_younger_one_is_replaced() -> None:
    site = PlansSite()
    site.rack("d1", 2)
    site.rack("d2", 2)
    site.ask("a", 16)
    site.ask("b", 16, priority=1)
    site.controller.work()
    site.until("a", "Planned", "a-1")
    site.until("b", "Planned", "b-1")
    site.controller.close()
    # What a leader that was stopped for too long had sent names the GPUs of another's plan.
    same = site.plan("b-1")["spec"]["groups"]
    site.rewrite("a-1", {"groups": same})
    assert judged(site.api) != []
    site.restart()
    site.until("a", "Planned", "a-2")
    site.controller.close()
    assert judged(site.api) == []
    assert site.status("b")["planRef"] == {"name": "b-1"}
    assert "another run has GPUs of node" in site.plan("a-2")["spec"]["reason"]
    assert claims(site.plan("a-2")).keys().isdisjoint(claims(site.plan("b-1")))
