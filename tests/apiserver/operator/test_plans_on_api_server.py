"""The controllers as a process, with the account and roles of deploy/base, on a real kube-apiserver."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.cluster.cluster import Cluster
from support.host import pages
from support.host.processes import Process
from support.operator.deployment import SHORT_LEASE, has_lost_its_lease
from support.operator.nodes import put
from support.operator.plans import PODS, RAW_CLAIMS, RAW_RUNS, claims, gpu_pod, newest, overallocated
from support.operator.plans_site import FLAVOR, NAMESPACE, Site, plans_site
from support.topology.claims import claim


@pytest.fixture
def site(gkm_cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    with plans_site(gkm_cluster, tmp_path) as made:
        yield made


def test_the_life_of_a_run(site: Site) -> None:
    """The steps that a user sees, in their order."""
    site.rack("pd1", 2)
    site.rack("pd2", 2)
    site.rack("pd3", 2)
    process = site.start("first")
    site.ask("big", 32)
    status = site.until("big", "Planned", "big-1")
    assert (status["gpus"], status["domains"]) == (32, 2)
    site.ask("wide", 32, allowCrossGroupSpread=False)
    status = site.until("wide", "DoesNotFit")
    site.cluster.until(lambda: site.api.get(RAW_RUNS, "wide", NAMESPACE)["status"].get("fixes"), "fixes")
    assert status["bindingLevel"] == "domain"

    plan = next(plan for plan in site.plans() if plan["metadata"]["name"] == "big-1")
    lost, *_ = sorted(claims(plan))
    site.cluster.objects.merge("node", lost, {"spec": {"unschedulable": True}})
    site.until("big", "Planned", "big-2")
    second = next(plan for plan in site.plans() if plan["metadata"]["name"] == "big-2")
    assert (second["spec"]["supersedes"], lost in claims(second)) == ("big-1", False)
    assert len(claims(plan).keys() & claims(second).keys()) >= 2
    site.cluster.until(lambda: site.live("big-1", "big-2") == ["Superseded", "Current"], "plans to say which counts")

    for number, node in enumerate(sorted(claims(second))):
        put(site.api, PODS, gpu_pod(f"big-{number}", node, 8, "big", NAMESPACE))
    site.ask("later", 8)
    site.until("later", "Planned")
    assert overallocated(site.plans(), site.totals()) == {}
    site.cluster.until(lambda: {"Planned", "Superseded"} <= set(site.events("big")), "it to be told")

    said = process.log.read_text(encoding="utf-8")
    assert '"residual_gpus"' in said
    lines = pages.fetch(site.health["first"], "metrics")[1]
    for counted in (
        'gkm_plan_total{reason="",result="planned"}',
        "gkm_plan_seconds_count",
        'gkm_queue_depth{controller="plans"}',
    ):
        assert counted in lines, counted

    def flavors() -> list[str]:
        account = site.cluster.objects.get("serviceaccount", "gkm-flavors", "gkm-system")
        told: str = account.get("metadata", {}).get("annotations", {}).get("gkm.io/flavors", "")
        return told.split(",")

    site.cluster.until(lambda: FLAVOR in flavors(), "the flavors to be told")


def test_gpus_of_claims_are_in_use(site: Site) -> None:
    """The allocation is what a scheduler writes: the API server validates it."""
    site.rack("pc1", 2)
    put(site.api, RAW_CLAIMS, claim("held", "plans-pc1-n0", *(f"gpu-{at}" for at in range(8)), namespace=NAMESPACE))
    site.start("first")
    site.ask("both", 16, selector={"labels": {"fabric.domain": "pc1"}})
    site.until("both", "DoesNotFit")
    site.api.delete(RAW_CLAIMS, "held", NAMESPACE)
    site.until("both", "Planned", "both-1")


@pytest.mark.partners
def test_leaders_killed_at_any_moment_allocate_no_gpu_twice(site: Site) -> None:
    for domain in range(4):
        site.rack(f"pk{domain}", 2)
    for round_ in range(4):
        process = site.start(f"leader-{round_}" if round_ else "first", main=SHORT_LEASE)
        for number in range(3):
            site.ask(f"r{round_}-{number}", 8)
        # The first plan is there, others and statuses are on their way; a leader that lost its lease is gone as well.
        site.cluster.until(partial(is_planned_or_gone, site, f"r{round_}-", process), "a plan to be made")
        process.kill()
        assert overallocated(site.plans(), site.totals()) == {}
    site.start("last")
    for round_ in range(4):
        for number in range(3):
            site.cluster.until(partial(has_answer, site, f"r{round_}-{number}"), "an answer")
    assert overallocated(site.plans(), site.totals()) == {}
    assert sum(sum(claims(plan).values()) for plan in newest(site.plans()).values()) == 64


def is_planned_or_gone(site: Site, begins: str, leader: Process) -> bool:
    found = site.plans()
    some = any(plan["spec"]["run"].startswith(begins) for plan in found)
    return some or len(newest(found)) == 8 or has_lost_its_lease(leader)


def has_answer(site: Site, name: str) -> bool:
    return site.condition(name)[0] in {"Planned", "DoesNotFit"}
