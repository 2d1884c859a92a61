"""How long a plan holds GPUs that no pod uses, and how many of them one namespace holds; against an API in memory."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from gkm.api.meta import timestamp
from gkm.kube.resources import NODES
from support.host.waiting import until
from support.operator.plans import NAMESPACE, PODS, RAW_RUNS, PlansSite, claims

SOON = timestamp(datetime.now(UTC) + timedelta(hours=3))
"""Another time than a plan of the default planTTL has."""
NEIGHBOR = "neighbor"


@pytest.fixture
def site() -> Iterator[PlansSite]:
    made = PlansSite()
    yield made
    made.controller.close()


def first_plan(site: PlansSite, gpus: int = 16) -> None:
    """Plan a run whose plan expires at another time than a new one would."""
    site.ask("r", gpus)
    site.controller.work()
    site.until("r", "Planned", "r-1")
    site.rewrite("r-1", {"expiresAt": SOON})


def again(site: PlansSite, value: str = "1") -> None:
    site.change("r", {"metadata": {"annotations": {"gkm.io/plan-again": value}}})


def expires(site: PlansSite, name: str) -> str:
    return str(site.plan(name)["spec"]["expiresAt"])


def conditions(site: PlansSite, name: str) -> dict[str, str]:
    return {one["type"]: one["status"] for one in site.plan(name).get("status", {}).get("conditions", [])}


def change(site: PlansSite) -> None:
    site.change("r", {"spec": {"gpus": 8}})


def lose_a_node(site: PlansSite) -> None:
    site.api.delete(NODES, min(claims(site.plan("r-1"))))


@pytest.mark.parametrize("cause", [again, change, lose_a_node])
def test_a_new_plan_of_a_run_without_pods_holds_gpus_no_longer(site: PlansSite, cause: object) -> None:
    site.rack("d1", 4)
    first_plan(site)
    assert callable(cause)
    cause(site)
    site.until("r", "Planned", "r-2")
    assert expires(site, "r-2") == SOON


def test_a_run_without_pods_cannot_hold_gpus_again(site: PlansSite) -> None:
    site.rack("d1", 2)
    first_plan(site)
    site.expire("r-1")
    site.until("r", "PlanExpired", "r-1")
    for number in (2, 3):
        again(site, str(number))
        site.until("r", "PlanExpired", f"r-{number}")
    site.change("r", {"spec": {"gpus": 8}})
    site.until("r", "PlanExpired", "r-4")
    assert "create it again to wait for GPUs anew" in site.planned("r")[2]
    site.ask("other", 16)
    site.until("other", "Planned", "other-1")
    assert claims(site.plan("other-1")).keys() >= claims(site.plan("r-4")).keys()


def test_a_run_that_had_a_pod_holds_gpus_again_also_after_a_restart(site: PlansSite) -> None:
    site.rack("d1", 2)
    first_plan(site)
    site.pod("p", min(claims(site.plan("r-1"))), 8, "r")
    until(lambda: conditions(site, "r-1") == {"Live": "True", "Started": "True"}, "the plan has the condition")
    site.api.delete(PODS, "p", NAMESPACE)
    site.expire("r-1")
    site.until("r", "PlanExpired", "r-1")
    until(lambda: conditions(site, "r-1") == {"Live": "False", "Started": "True"}, "the plan is reported after its Run")
    assert [one["reason"] for one in site.plan("r-1")["status"]["conditions"]] == ["PlanExpired", "PodsRan"]
    assert "create it again" not in site.planned("r")[2]
    site.restart()
    again(site)
    site.until("r", "Planned", "r-2")
    until(lambda: conditions(site, "r-2") == {"Live": "True"}, "the new plan has had no pod")
    until(lambda: conditions(site, "r-1") == {"Live": "False", "Started": "True"}, "the old plan had a pod")
    site.rewrite("r-2", {"expiresAt": SOON})
    again(site, "2")
    site.until("r", "Planned", "r-3")
    assert expires(site, "r-3") == SOON


def test_a_loss_among_running_pods_holds_gpus_for_a_whole_time(site: PlansSite) -> None:
    site.rack("d1", 4)
    first_plan(site)
    first, second = sorted(claims(site.plan("r-1")))
    site.pod("p", second, 8, "r")
    site.cordon(first)
    site.until("r", "Planned", "r-2")
    assert expires(site, "r-2") not in ("", SOON)


def test_late_pods_make_an_expired_plan_count_again(site: PlansSite) -> None:
    site.rack("d1", 2)
    first_plan(site)
    site.expire("r-1")
    site.until("r", "PlanExpired", "r-1")
    site.pod("p", min(claims(site.plan("r-1"))), 8, "r")
    site.until("r", "Planned", "r-1")


def neighbor_waits(site: PlansSite) -> None:
    """Let a run of another namespace wait for more GPUs than are free."""
    site.ask("big", 64, NEIGHBOR)
    until(lambda: site.planned("big", NEIGHBOR)[1] == "DoesNotFit", "the neighbor waits")


def held(site: PlansSite, *names: str) -> None:
    site.controller.work()
    for name in names:
        site.ask(name, 16)
        site.until(name, "Planned", f"{name}-1")


def test_a_namespace_holds_no_more_than_its_share_while_another_waits(site: PlansSite) -> None:
    site.rack("d1", 8)
    held(site, "a", "b")
    neighbor_waits(site)
    site.ask("c", 16)
    site.until("c", "NamespaceShare")
    assert site.planned("c")[1] == "NamespaceShare"
    assert (
        "hold 32 GPUs of flavor h100 that no pod uses. With 16 more they would hold over 50 % of 64"
        in (site.planned("c")[2])
    )
    site.api.delete(RAW_RUNS, "big", NEIGHBOR)
    site.until("c", "Planned", "c-1")


def test_spares_are_in_the_share(site: PlansSite) -> None:
    site.rack("d1", 8)
    held(site, "a")
    neighbor_waits(site)
    site.ask("c", 8, gpusPerPod=8, groupGPUs=8, spares=2)
    site.until("c", "NamespaceShare")
    assert "With 24 more they would hold over 50 % of 64" in site.planned("c")[2]


def is_refused(site: PlansSite, name: str, words: str) -> None:
    """Wait until a run has a result: its namespace has its share, and nothing else."""
    until(lambda: site.planned(name)[1] != "", f"{name} has a result")
    assert site.planned(name)[1] == "NamespaceShare", "the run holds GPUs beyond the share of its namespace"
    assert words in site.planned(name)[2]


def test_spares_of_a_short_group_are_in_the_share(site: PlansSite) -> None:
    site.rack("d1", 8)
    held(site, "a")
    neighbor_waits(site)
    site.ask("c", 8, groupGPUs=16, spares=4)
    is_refused(site, "c", "With 40 more they would hold over 50 % of 64")


def test_a_run_of_another_flavor_counts_where_its_plan_holds_gpus(site: PlansSite) -> None:
    site.rack("d1", 8)
    site.rack("e1", 1, gpu__flavor="gb200")
    held(site, "a", "b")
    neighbor_waits(site)
    for name in ("a", "b"):
        site.change(name, {"spec": {"flavor": "gb200"}})
        site.until(name, "DoesNotFit", f"{name}-1")
    site.ask("c", 16)
    is_refused(site, "c", "hold 32 GPUs of flavor h100 that no pod uses")


@pytest.mark.parametrize("more", [{"gpus": 32}, {"spares": 2}, {"flavor": "h100"}])
def test_a_live_plan_holds_more_within_the_share_only(site: PlansSite, more: dict[str, object]) -> None:
    site.rack("d1", 8)
    site.rack("e1", 2, gpu__flavor="gb200")
    held(site, "a", "b")
    site.ask("m", 16, flavor="gb200" if "flavor" in more else "h100")
    site.until("m", "Planned", "m-1")
    neighbor_waits(site)
    site.change("m", {"spec": more})
    until(lambda: site.status("m")["observedGeneration"] == 2, "the change has a result")
    is_refused(site, "m", "m-1 stays current")
    site.api.delete(RAW_RUNS, "big", NEIGHBOR)
    site.until("m", "Planned", "m-2")


def test_gpus_that_pods_use_count_for_no_share(site: PlansSite) -> None:
    site.rack("d1", 8)
    held(site, "a", "b")
    for name in ("a", "b"):
        for node in claims(site.plan(f"{name}-1")):
            site.pod(f"{name}-{node}", node, 8, name)
    neighbor_waits(site)
    site.ask("c", 16)
    site.until("c", "Planned", "c-1")


def test_a_namespace_that_holds_none_plans_a_run_of_any_size(site: PlansSite) -> None:
    site.rack("d1", 8)
    site.controller.work()
    site.ask("huge", 4096, NEIGHBOR)
    until(lambda: site.planned("huge", NEIGHBOR)[1] == "DoesNotFit", "the neighbor waits")
    site.ask("whole", 64)
    site.until("whole", "Planned", "whole-1")


def whole_with_one_pod(site: PlansSite) -> None:
    """Plan a run of all GPUs, of which one pod starts."""
    site.rack("d1", 8)
    first_plan(site, 64)
    site.pod("p", min(claims(site.plan("r-1"))), 8, "r")
    until(lambda: conditions(site, "r-1") == {"Live": "True", "Started": "True"}, "the pod is seen")


def test_one_pod_holds_the_rest_of_a_run_again_within_the_share_only(site: PlansSite) -> None:
    whole_with_one_pod(site)
    neighbor_waits(site)
    again(site)
    site.until("r", "Planned", "r-2")
    assert expires(site, "r-2") == SOON
    site.expire("r-2")
    again(site, "2")
    site.until("r", "Planned", "r-3")
    assert expires(site, "r-3") == expires(site, "r-2")
    site.ask("fits", 56, NEIGHBOR)
    until(lambda: site.planned("fits", NEIGHBOR)[1] == "Planned", "the neighbor has what no pod uses")


def test_one_pod_holds_the_rest_of_a_run_again_while_no_other_namespace_waits(site: PlansSite) -> None:
    whole_with_one_pod(site)
    again(site)
    site.until("r", "Planned", "r-2")
    assert expires(site, "r-2") not in ("", SOON)


def test_pods_of_half_a_run_hold_the_other_half_again(site: PlansSite) -> None:
    whole_with_one_pod(site)
    for node in sorted(claims(site.plan("r-1")))[1:4]:
        site.pod(f"p-{node}", node, 8, "r")
    neighbor_waits(site)
    again(site)
    site.until("r", "Planned", "r-2")
    assert expires(site, "r-2") not in ("", SOON)


def test_runs_of_another_flavor_and_of_ones_own_limit_no_share(site: PlansSite) -> None:
    site.rack("d1", 8)
    site.rack("e1", 1, gpu__flavor="gb200")
    held(site, "a", "b")
    site.ask("mine", 4096)
    site.until("mine", "DoesNotFit")
    site.ask("other", 64, NEIGHBOR, flavor="gb200")
    until(lambda: site.planned("other", NEIGHBOR)[1] == "DoesNotFit", "the neighbor waits")
    site.ask("c", 16)
    site.until("c", "Planned", "c-1")


def test_a_larger_share_can_be_configured() -> None:
    site = PlansSite('{"packing": {"namespaceShare": 75}}')
    try:
        site.rack("d1", 8)
        held(site, "a", "b")
        neighbor_waits(site)
        site.ask("c", 16)
        site.until("c", "Planned", "c-1")
    finally:
        site.controller.close()
