"""The controllers as a process, with the account and roles of deploy/base, on a real kube-apiserver."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gkm.kube.client import connect
from gkm.kube.resources import NODES, Json
from support.cluster.cluster import Cluster, KubectlFailed
from support.host import listening, pages
from support.host.processes import Process
from support.operator.deployment import HURRIED, SHORT_LEASE, operator
from support.operator.nodes import put
from support.operator.plans import (
    PODS,
    RAW_PLANS,
    RAW_RUNS,
    claims,
    everything,
    gpu_node,
    gpu_pod,
    newest,
    overallocated,
    run,
)

NAMESPACE = "planned"
FLAVOR = "test-gpu"
"""One that no node of other tests has."""


class Site:
    """A fleet of its own in the cluster that tests share, and replicas that compete for a lease of their own."""

    def __init__(self, cluster: Cluster, directory: Path, stack: ExitStack) -> None:
        self.cluster = cluster
        self.api = connect(str(cluster.kubeconfig))
        self.names: list[str] = []
        self.health: dict[str, str] = {}
        self._directory = directory
        self._stack = stack

    def rack(self, domain: str, count: int) -> None:
        for number in range(count):
            node = gpu_node(f"plans-{domain}-n{number}", domain, gpu__flavor=FLAVOR)
            node["spec"] = {"taints": []}
            self.names.append(node["metadata"]["name"])
            put(self.api, NODES, node)

    def start(self, name: str, *, main: tuple[str, ...] = HURRIED) -> Process:
        directory = self._directory / name
        directory.mkdir()
        account = "system:serviceaccount:gkm-system:gkm-controllers"
        arguments = (
            "controllers",
            "--health=127.0.0.1:0",
            f"--kubeconfig={self.cluster.kubeconfig_for(account)}",
            f"--identity={name}",
            f"--lease={self._directory.name}",
            "--log-level=debug",
        )
        process = self._stack.enter_context(operator(directory, *arguments, main=main))
        pages.wait_until_ready(process)
        self.health[name] = listening.address(process)
        return process

    def ask(self, name: str, gpus: int, **spec: Any) -> None:  # noqa: ANN401 -- JSON
        self.api.create(RAW_RUNS, run(name, gpus, NAMESPACE, flavor=FLAVOR, **spec))

    def condition(self, name: str) -> tuple[str, str]:
        """The reason of Planned, and the plan that the status names."""
        status = self.api.get(RAW_RUNS, name, NAMESPACE).get("status", {})
        reasons = [condition["reason"] for condition in status.get("conditions", [])]
        return (reasons or [""])[0], status.get("planRef", {}).get("name", "")

    def until(self, name: str, reason: str, plan: str = "") -> Json:
        def so() -> bool:
            found = self.condition(name)
            return found[0] == reason and plan in ("", found[1])

        self.cluster.until(so, f"{name} to be {reason} {plan}")
        return self.api.get(RAW_RUNS, name, NAMESPACE)["status"]  # type: ignore[no-any-return]

    def plans(self) -> list[Json]:
        """The plans of the Runs that there are; those of others are on their way out."""
        uids = {one["metadata"]["uid"] for one in everything(self.api, RAW_RUNS)}
        found = everything(self.api, RAW_PLANS)
        return [plan for plan in found if plan["metadata"]["ownerReferences"][0]["uid"] in uids]

    def live(self, *names: str) -> list[str]:
        """What `kubectl get` shows of plans as LIVE, the second column behind the name."""
        shown = self.cluster.kubectl("get", "gkmp", *names, "-n", NAMESPACE).splitlines()
        assert shown[0].split()[:3] == ["NAME", "RUN", "LIVE"]
        return [line.split()[2] for line in shown[1:]]

    def totals(self) -> dict[str, int]:
        return dict.fromkeys(self.names, 8)

    def events(self, name: str) -> list[str]:
        found = self.cluster.objects.every("events", NAMESPACE, fieldSelector=f"involvedObject.name={name}")
        return sorted(event["reason"] for event in found)


@pytest.fixture
def site(gkm_cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    gkm_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    accept_every_flavor(gkm_cluster)
    directory = tmp_path / f"plans-{tmp_path.name[-20:].replace('_', '-')}"
    directory.mkdir()
    role = json.loads(gkm_cluster.kubectl("get", "role", "-n", "gkm-system", "gkm-controllers-lease", "-o", "json"))
    role["rules"][0]["resourceNames"] = [directory.name]
    meta = {"metadata": {"name": directory.name, "namespace": "gkm-system"}}
    gkm_cluster.apply({key: role[key] for key in ("apiVersion", "kind", "rules")} | meta)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": directory.name}
    subject = {"kind": "ServiceAccount", "name": "gkm-controllers", "namespace": "gkm-system"}
    binding = {"apiVersion": role["apiVersion"], "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}
    gkm_cluster.apply(binding | meta)
    with ExitStack() as stack:
        made = Site(gkm_cluster, directory, stack)
        try:
            yield made
        finally:
            for kind in ("runs", "placementplans", "pods"):
                gkm_cluster.kubectl("delete", kind, "--all", "-n", NAMESPACE, "--grace-period=0", "--force")
            for name in made.names:
                gkm_cluster.kubectl("delete", "node", name, "--ignore-not-found")
    # After the controllers have ended: they may write it until then.
    accept_every_flavor(gkm_cluster)


def accept_every_flavor(cluster: Cluster) -> None:
    """Delete the flavors that the controllers of another test wrote, and wait until the API server has seen that.

    The policy gkm-runs-flavor refuses a Run with a flavor that is not among them.
    """
    cluster.kubectl("delete", "configmap", "gkm-flavors", "-n", "gkm-system", "--ignore-not-found")
    request = json.dumps(run("flavor-check", 8, NAMESPACE, flavor=FLAVOR))

    def accepted() -> bool:
        try:
            cluster.kubectl("create", "--dry-run=server", "-f", "-", input=request)
        except KubectlFailed:
            return False
        return True

    cluster.until(accepted, f"a Run of flavor {FLAVOR} to be accepted")


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
    site.cluster.kubectl("cordon", lost)
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
    flavors = json.loads(site.cluster.kubectl("get", "configmap", "gkm-flavors", "-n", "gkm-system", "-o", "json"))
    assert FLAVOR in flavors["data"]["flavors"].split(",")


@pytest.mark.partners
def test_leaders_killed_at_any_moment_allocate_no_gpu_twice(site: Site) -> None:
    for domain in range(4):
        site.rack(f"pk{domain}", 2)
    for round_ in range(4):
        process = site.start(f"leader-{round_}" if round_ else "first", main=SHORT_LEASE)
        for number in range(3):
            site.ask(f"r{round_}-{number}", 8)
        # The first plan is there: others, and statuses, are on their way.
        site.cluster.until(partial(some_plan_of, site, f"r{round_}-"), "a plan to be made")
        process.popen.kill()
        process.popen.wait()
        assert overallocated(site.plans(), site.totals()) == {}
    site.start("last")
    for round_ in range(4):
        for number in range(3):
            site.cluster.until(partial(has_answer, site, f"r{round_}-{number}"), "an answer")
    assert overallocated(site.plans(), site.totals()) == {}
    assert sum(sum(claims(plan).values()) for plan in newest(site.plans()).values()) == 64


def some_plan_of(site: Site, begins: str) -> bool:
    return any(plan["spec"]["run"].startswith(begins) for plan in site.plans()) or len(newest(site.plans())) == 8


def has_answer(site: Site, name: str) -> bool:
    return site.condition(name)[0] in {"Planned", "DoesNotFit"}
