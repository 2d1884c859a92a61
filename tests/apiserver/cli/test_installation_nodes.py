"""The doctor's checks of nodes and of what runs there: whose nodes count, and what may still be unfinished."""

from copy import deepcopy
from typing import Any

import pytest
from gkm_cli.doctor.installation import caches, controllers, daemons, nodes
from support.cli.observations import (
    GPUS,
    OLD,
    YOUNG,
    Json,
    briefly,
    cache,
    node,
    observed,
    pod,
    report,
)
from support.operator.deployment import manifests

AMD_GPUS: Json = {"capacity": {"amd.com/gpu": "8"}}
OWN_TERMS = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["serving"]}]}]
TERMS = ("template", "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


def agents(
    *, terms: list[Json] | None = None, amd: bool = False, created: str = OLD, counts: tuple[int, int] = (0, 0)
) -> Json:
    """The agent's DaemonSet of the chart, with other terms, or for AMD; `counts` are the pods wanted and scheduled."""
    made: Json = deepcopy(
        next(one for one in manifests() if (one["kind"], one["metadata"]["name"]) == ("DaemonSet", "gkm-agent"))
    )
    made["metadata"]["creationTimestamp"] = created
    required = made["spec"]
    for step in TERMS:
        required = required[step]
    if terms is not None:
        required["nodeSelectorTerms"] = terms
    if amd:
        made["spec"]["template"]["spec"]["volumes"].append({"name": "rocm", "hostPath": {"path": "/opt/rocm"}})
    status = {"desiredNumberScheduled": counts[0], "currentNumberScheduled": counts[1]}
    return {"gkm-agent": made | {"status": status}}


def test_only_a_node_with_gpus_needs_a_label() -> None:
    made = [
        node("cpu"),
        node("none", capacity={"nvidia.com/gpu": "0"}),
        node("gpu", **GPUS),
        node("new", created=YOUNG, **GPUS),
        node("mig", capacity={"nvidia.com/mig-1g.10gb": "7"}),
        node("nic", capacity={"nvidia.com/hostdev": "1"}),
        node("running", **GPUS),
        node("labeled", labels={"nvidia.com/gpu.present": "true"}, **GPUS),
        node("meant", labels={"gkm.io/gpu": "false"}, **GPUS),
    ]
    found = observed(daemon_sets=agents(), nodes=made, pods=[pod("gkm-agent", node="running")])
    assert briefly(nodes.label(found)) == [("problem", "Node gpu"), ("problem", "Node mig")]


def test_only_nodes_of_the_vendor_count() -> None:
    made = [node("nvidia", **GPUS), node("amd", **AMD_GPUS)]
    assert briefly(nodes.label(observed(daemon_sets=agents(), nodes=made))) == [("problem", "Node nvidia")]
    assert briefly(nodes.label(observed(daemon_sets=agents(amd=True), nodes=made))) == [("problem", "Node amd")]


def test_a_pool_outside_of_the_terms_of_an_administrator_is_a_warning() -> None:
    made = [node("left-out", **GPUS), node("meant", labels={"pool": "serving"}, **GPUS), node("amd", **AMD_GPUS)]
    own = observed(daemon_sets=agents(terms=OWN_TERMS), nodes=made)
    assert briefly(nodes.label(own)) == [("warning", "Node left-out")]


def test_an_agent_that_wants_every_node_needs_no_label() -> None:
    assert list(nodes.label(observed(daemon_sets=agents(terms=[]), nodes=[node(**GPUS)]))) == []


def test_a_kubelet_counts_where_an_agent_runs() -> None:
    old: dict[str, Any] = {"nodeInfo": {"kubeletVersion": "v1.29.3"}}
    made = observed(nodes=[node("a", **old), node("b", **GPUS, **old)], pods=[pod("gkm-agent", node="a")])
    assert briefly(nodes.kubelet(made)) == [("problem", "Node a")]


@pytest.mark.parametrize(
    ("terms", "labels"),
    [
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}], {}),
        ([{"matchExpressions": [{"key": "gpus", "operator": "Gt", "values": ["4"]}]}], {"gpus": "1"}),
    ],
)
def test_the_controller_of_daemon_sets_knows_where_an_agent_should_run(terms: list[Json], labels: Json) -> None:
    sets = agents(terms=terms, counts=(3, 3))
    assert list(daemons.agent_absent(observed(daemon_sets=sets, nodes=[node("cpu", labels=labels)]))) == []
    sets = agents(terms=terms, counts=(3, 2))
    (finding,) = daemons.agent_absent(observed(daemon_sets=sets, nodes=[node("cpu", labels=labels)]))
    assert finding.detail == "it has no pod on 1 of 3 nodes"


@pytest.mark.parametrize(("created", "found"), [(OLD, 1), (YOUNG, 0)])
def test_a_new_node_may_wait_for_its_agent(created: str, found: int) -> None:
    assert (
        len(list(daemons.agent_absent(observed(daemon_sets=agents(counts=(1, 0)), nodes=[node(created=created)]))))
        == found
    )
    new = observed(daemon_sets=agents(created=created, counts=(1, 0)), nodes=[node()])
    assert len(list(daemons.agent_absent(new))) == found


@pytest.mark.parametrize("program", ["gkm-agent", "gkm-csi"])
@pytest.mark.parametrize(
    ("created", "ready", "found"),
    [
        (OLD, None, 1),
        (OLD, ("False", OLD), 1),
        (OLD, ("True", OLD), 0),
        (YOUNG, None, 0),
        (OLD, ("False", YOUNG), 0),
    ],
)
def test_a_pod_may_be_unready_for_the_grace_period(
    program: str, created: str, ready: tuple[str, str] | None, found: int
) -> None:
    check = daemons.agent_not_ready if program == "gkm-agent" else daemons.csi_not_ready
    sets = {program: {"status": {"desiredNumberScheduled": 2, "numberReady": 1}}}
    made = observed(daemon_sets=sets, pods=[pod(program, created=created, ready=ready)])
    assert len(list(check(made))) == found


def test_a_daemon_that_is_behind_without_an_unready_pod_is_about_to_start() -> None:
    behind = {"gkm-csi": {"status": {"desiredNumberScheduled": 2, "numberReady": 1}}}
    assert list(daemons.csi_not_ready(observed(daemon_sets=behind))) == []


@pytest.mark.parametrize(("since", "found"), [(OLD, 1), (YOUNG, 0)])
def test_kubelet_may_register_the_driver_within_the_grace_period(since: str, found: int) -> None:
    assert len(list(daemons.not_registered(observed(pods=[pod("gkm-csi", ready=("True", since))])))) == found


def test_a_handover_of_the_lease_is_no_fault() -> None:
    def found(lease: Json | None, created: str = OLD) -> int:
        sets = {"gkm-controllers": {"metadata": {"creationTimestamp": created}}}
        return len(list(controllers.leader(observed(deployments=sets, lease=lease))))

    released = {"spec": {"holderIdentity": "", "renewTime": "2026-11-23T11:59:50.000000Z"}}
    assert found(released) == 0
    assert found({"spec": {"holderIdentity": "", "renewTime": "2026-11-23T11:50:00.000000Z"}}) == 1
    assert (found(None), found(None, YOUNG)) == (1, 0)


def test_a_report_is_stale_when_its_node_and_its_agent_are_gone() -> None:
    reports = [
        report("gone", state="Ready"),
        report("deleted", state="Ready"),
        report("new", created=YOUNG, state="Ready"),
    ]
    pods = [pod("gkm-agent", node="deleted")]
    (finding,) = nodes.stale_reports(observed(daemon_sets=agents(), reports=reports, pods=pods))
    assert finding.detail == "the Node does not exist: gone"


@pytest.mark.parametrize(
    ("counts", "capacity", "found"),
    [((0, 0), {}, 1), ((1, 0), {}, 0), ((0, 0), GPUS, 0)],
)
def test_a_report_of_a_node_without_agent_has_one_name(counts: tuple[int, int], capacity: Json, found: int) -> None:
    made = observed(daemon_sets=agents(counts=counts), reports=[report("n", state="Ready")], nodes=[node(**capacity)])
    assert len(list(nodes.stale_reports(made))) == found


OLD_DRIVER = [{"ids": [0], "reason": "DriverTooOld", "message": "the cache needs CUDA 12.8"}]


def test_an_old_driver_is_a_problem_where_no_other_node_fits() -> None:
    old = report("old", state="Incompatible", incompatibleGPUs=OLD_DRIVER)
    new = report("new", state="Ready", compatibleGPUs=[{"ids": [0]}])
    assert briefly(nodes.driver(observed(reports=[old]))) == [("problem", "Node old")]
    assert briefly(nodes.driver(observed(reports=[old, new]))) == [("warning", "Node old")]


@pytest.mark.parametrize(
    ("verified", "found"),
    [(None, 1), (("True", "CosignSuccess"), 1), (("False", "NotFound"), 0), (("Unknown", "Down"), 0)],
)
def test_what_follows_from_a_refusal_has_no_other_name(verified: tuple[str, str] | None, found: int) -> None:
    known = [cache(verified=verified)] if verified else []
    failed = observed(reports=[report("n", state="Failed", reason="NotFound")], caches=known)
    stuck = observed(reports=[report("n", state="Pending", lastUpdated="2026-11-23T10:00:00Z")], caches=known)
    assert (len(list(caches.failed(failed))), len(list(caches.stuck(stuck)))) == (found, found)
