"""Controllers killed at every write let no run hold GPUs longer than its plan says, and forget no pod that they saw."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from gkm.api.config import Config
from gkm.api.meta import timestamp
from gkm.kube.resources import Json
from gkm_operator.plans.controller import PlansController
from gkm_operator.plans.state.node_loss import GracePeriod
from support.host.waiting import until
from support.kube.dying_api import DyingApi
from support.operator.plans import NAMESPACE, PODS, PlansSite, claims, newest

SOON = timestamp(datetime.now(UTC) + timedelta(hours=3))
"""Another time than a plan of the default planTTL has."""
RUNS = ("idle", "used")


@pytest.fixture(autouse=True)
def nobody_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # A killed thread prints its exception, which is expected here.
    monkeypatch.setattr("threading.excepthook", lambda _args: None)
    before = set(threading.enumerate())
    yield
    until(lambda: not set(threading.enumerate()) - before, "all threads to end")


def planned_site() -> PlansSite:
    """Return a cluster with two planned runs, of which one has a pod that no controller has seen."""
    site = PlansSite()
    site.rack("d1", 8)
    for name in RUNS:
        site.ask(name, 16)
    site.controller.work()
    for name in RUNS:
        site.until(name, "Planned", f"{name}-1")
    site.controller.close()
    for name in RUNS:
        site.rewrite(f"{name}-1", {"expiresAt": SOON})
    site.controller = site.new()
    site.pod("p", min(claims(site.plan("used-1"))), 8, "used")
    return site


def current(site: PlansSite, name: str) -> Json:
    return newest(site.plans())[NAMESPACE, name]


def is_started(plan: Json) -> bool:
    return any(one["type"] == "Started" for one in plan.get("status", {}).get("conditions", []))


def ask_again(site: PlansSite, value: str) -> None:
    for name in RUNS:
        site.change(name, {"metadata": {"annotations": {"gkm.io/plan-again": value}}})


def answered(site: PlansSite, value: str) -> bool:
    """Whether both runs have a plan for a request."""
    return all(current(site, name)["metadata"]["annotations"].get("gkm.io/plan-again") == value for name in RUNS)


def work_until_killed(site: PlansSite, number: int, done: Callable[[], bool], *, before: bool) -> bool:
    """Let a process work until it dies or has done its work; return whether it died."""
    api = DyingApi(site.api, number, before=before)
    doomed = PlansController(api, Config(), calm=0.001, pause=0.001, grace=GracePeriod(0.0))
    doomed.work()
    until(lambda: api.dead or done(), "it dies or has worked")
    doomed.close()
    until(lambda: not doomed._thread.is_alive(), "the thread to end")
    return api.dead


def plan_again_without_pod(site: PlansSite) -> None:
    """Delete the pod, and let another process plan both runs again."""
    site.api.delete(PODS, "p", NAMESPACE)
    ask_again(site, "1")
    site.controller.work()
    until(lambda: answered(site, "1"), "both runs have their plans")
    site.controller.close()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_controllers_killed_at_every_write_renew_the_time_of_runs_that_had_a_pod_only(before: bool) -> None:  # noqa: FBT001 -- a parameter
    remembered: list[bool] = []
    died = True
    while died:
        site = planned_site()
        done = partial(is_started_now, site)
        died = work_until_killed(site, 1 + len(remembered), done, before=before)
        recorded = done()
        plan_again_without_pod(site)
        assert current(site, "idle")["spec"]["expiresAt"] == SOON
        assert (current(site, "used")["spec"]["expiresAt"] != SOON) == recorded
        remembered.append(recorded)
    assert set(remembered) == {True, False}


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_controllers_killed_while_they_plan_again_renew_what_they_planned_with_a_pod_only(before: bool) -> None:  # noqa: FBT001 -- a parameter
    renewed: list[bool] = []
    died = True
    while died:
        site = planned_site()
        ask_again(site, "1")
        done = partial(has_worked, site)
        died = work_until_killed(site, 1 + len(renewed), done, before=before)
        # The process that plans has seen the pod.
        planned_with_pod = current(site, "used")["metadata"]["name"] != "used-1"
        plan_again_without_pod(site)
        assert current(site, "idle")["spec"]["expiresAt"] == SOON
        assert (current(site, "used")["spec"]["expiresAt"] != SOON) == planned_with_pod
        renewed.append(planned_with_pod)
    assert set(renewed) == {True, False}


def is_started_now(site: PlansSite) -> bool:
    return is_started(site.plan("used-1"))


def has_worked(site: PlansSite) -> bool:
    return is_started_now(site) and answered(site, "1")
