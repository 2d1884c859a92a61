"""Who may hold GPUs without pods, for how long, and with which priority; on a real API server with the roles of GKM."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from gkm.api.runs import MAX_PRIORITY
from gkm.kube.resources import Json
from support.cluster.cluster import Cluster
from support.cluster.objects import Objects, refusal
from support.operator.plans import RAW_RUNS, claims, run
from support.operator.plans_site import FLAVOR, NAMESPACE, Site, plans_site

TENANT = "plan-tenant"
TTL_SECONDS = 20


@pytest.fixture
def site(gkm_cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    with plans_site(gkm_cluster, tmp_path) as made:
        yield made


def again(site: Site, name: str, value: str) -> None:
    site.api.merge(RAW_RUNS, name, {"metadata": {"annotations": {"gkm.io/plan-again": value}}}, NAMESPACE)


def plan(site: Site, name: str) -> Json:
    return next(one for one in site.plans() if one["metadata"]["name"] == name)


def test_a_run_without_pods_holds_gpus_for_one_time(site: Site, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"packing": {"planTTL": TTL_SECONDS}}), encoding="utf-8")
    for domain in ("ph1", "ph2"):
        site.rack(domain, 16)
    site.start("first", arguments=(f"--config={config}",))
    site.ask("greedy", 256, priority=MAX_PRIORITY)
    site.until("greedy", "Planned", "greedy-1")
    site.ask("honest", 256)
    site.until("honest", "DoesNotFit")
    again(site, "greedy", "1")
    site.until("greedy", "Planned", "greedy-2")
    ends = plan(site, "greedy-1")["spec"]["expiresAt"]
    assert plan(site, "greedy-2")["spec"]["expiresAt"] == ends
    site.until("honest", "Planned", "honest-1")
    assert datetime.now(UTC) >= datetime.fromisoformat(ends)
    assert len(claims(plan(site, "honest-1"))) == 32
    again(site, "greedy", "2")
    site.until("greedy", "DoesNotFit", "greedy-2")
    assert site.api.get(RAW_RUNS, "honest", NAMESPACE)["status"]["planRef"]["name"] == "honest-1"


@pytest.fixture
def tenant(gkm_cluster: Cluster) -> Iterator[Objects]:
    """What a user with the role edit in one namespace sees and changes."""
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    bind(gkm_cluster, "edit")
    # The controller-manager aggregates gkm-edit into the role.
    gkm_cluster.until(lambda: may_create_runs(gkm_cluster), "the role edit to cover runs")
    yield gkm_cluster.objects.as_user(TENANT)
    gkm_cluster.objects.delete_patiently("namespace", TENANT)  # the next test makes it again


def may_create_runs(cluster: Cluster) -> bool:
    asked = {"verb": "create", "group": "gkm.io", "resource": "runs", "namespace": TENANT}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = cluster.objects.as_user(TENANT).create(review | {"spec": {"resourceAttributes": asked}})
    return bool(answer["status"]["allowed"])


def bind(cluster: Cluster, role: str) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": TENANT}]
    meta = {"metadata": {"name": f"{TENANT}-{role}", "namespace": TENANT}}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"} | meta
    cluster.apply(binding | {"roleRef": reference, "subjects": subjects})


def created(tenant: Objects, name: str, priority: int) -> str:
    """Why the API server refuses a Run of the tenant; empty where it does not."""
    return refusal(lambda: tenant.create(run(name, 16, TENANT, flavor=FLAVOR, priority=priority)))


def raised(tenant: Objects, name: str, priority: int) -> str:
    return refusal(lambda: tenant.merge("run", name, {"spec": {"priority": priority}}, TENANT))


NOT_RAISED = f"{TENANT} must not raise the priority of a Run to"


@pytest.mark.usefixtures("site")
def test_a_tenant_chooses_no_priority_above_that_of_others(tenant: Objects) -> None:
    assert f"{NOT_RAISED} {MAX_PRIORITY}: it needs the verb prioritize" in created(tenant, "a", MAX_PRIORITY)
    assert created(tenant, "a", 0) == ""
    assert f"{NOT_RAISED} 1" in raised(tenant, "a", 1)
    assert raised(tenant, "a", -5) == ""
    assert f"{NOT_RAISED} 7" in raised(tenant, "a", 7)


def test_a_run_that_was_given_a_priority_may_be_changed_and_lowered(site: Site, tenant: Objects) -> None:
    site.api.create(RAW_RUNS, run("b", 16, TENANT, flavor=FLAVOR, priority=9))
    tenant.merge("run", "b", {"metadata": {"annotations": {"gkm.io/plan-again": "1"}}}, TENANT)
    assert f"{NOT_RAISED} 10" in raised(tenant, "b", 10)
    assert raised(tenant, "b", 5) == ""
    assert f"{NOT_RAISED} 9" in raised(tenant, "b", 9)


def test_the_right_to_prioritize_is_a_role(site: Site, tenant: Objects) -> None:
    bind(site.cluster, "gkm-run-priority")
    site.cluster.until(lambda: not created(tenant, "c", 100), "the right to count")
    assert raised(tenant, "c", MAX_PRIORITY) == ""
