"""The parts of a status from objects: each object in one state, and no number from what nobody stated."""

import json
from typing import Any

import pytest
from gkm.api.caches import CacheStatus, GKMCache
from gkm.api.computedomains import ComputeDomain
from gkm.api.nodes import GKMCacheNode
from gkm.api.runs import Run
from gkm.api.topology_settings import Topology
from gkm_cli.doctor.findings import Finding, Severity
from gkm_cli.doctor.runner import Result
from gkm_cli.status import summary
from gkm_cli.status.parts import CACHE_STATES, FabricDomain
from msgspec import convert, structs
from support.cli.observations import GPUS, OLD, node, pod

Json = dict[str, Any]
IMAGE = "registry.example/team/caches/llama:1"
READY: Json = {"conditions": [{"type": "Ready", "status": "True"}]}


def condition(kind: str, status: str, reason: str = "Because") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": f"of {reason}", "lastTransitionTime": OLD}


def cache(name: str = "llama", *conditions: Json, spec: Json | None = None, **status: Any) -> GKMCache:  # noqa: ANN401 -- fields of the status
    """A cache whose status is about its image."""
    made = {"image": IMAGE, "conditions": list(conditions), **status}
    metadata = {"name": name, "namespace": "ml-apps"}
    return convert(
        {"kind": "GKMCache", "metadata": metadata, "spec": {"image": IMAGE, **(spec or {})}, "status": made}, GKMCache
    )


def reported(node_name: str, state: str, name: str = "llama") -> GKMCacheNode:
    metadata = {"name": node_name, "namespace": "ml-apps"}
    made = {"kind": "GKMCacheNode", "metadata": metadata, "spec": {"nodeName": node_name}}
    return convert(made | {"status": {"caches": {name: {"state": state}}}}, GKMCacheNode)


VERIFIED = condition("Verified", "True", "CosignSuccess")
PENDING = condition("Ready", "False", "NodesPending")


def test_nodes_with_gpus_are_served_by_an_agent_that_is_ready_there() -> None:
    listed = [node("a", **GPUS), node("b", **(GPUS | READY)), node("c", **GPUS), node("cpu", **READY)]
    agents = [
        pod("gkm-agent", node="a", ready=("True", OLD)),
        pod("gkm-agent", node="b", ready=("False", OLD)),
        pod("gkm-csi", node="c", ready=("True", OLD)),
    ]
    found = summary.nodes(listed, agents)
    assert (found.total, found.ready, found.with_gpus, found.served) == (4, 2, 3, 1)
    assert (found.agents, found.ready_agents, found.unserved) == (2, 1, ("b", "c"))


@pytest.mark.parametrize(
    ("made", "state"),
    [
        (cache(), "waiting"),
        (cache("llama", condition("Verified", "False", "SignatureMissing"), PENDING), "refused"),
        (cache("llama", condition("Verified", "Unknown", "RegistryUnavailable"), PENDING), "waiting"),
        (cache("llama", VERIFIED, condition("Ready", "False", "NodesIncompatible"), totalNodes=1), "fits no node"),
        (cache("llama", VERIFIED, condition("Ready", "False", "NoMatchingNodes")), "fits no node"),
        (cache("llama", VERIFIED, condition("Ready", "False", "NodesFailed"), totalNodes=2, failedNodes=1), "failed"),
        (cache("llama", VERIFIED, condition("Ready", "True"), totalNodes=2, readyNodes=2), "ready"),
        (cache("llama", VERIFIED, PENDING, totalNodes=2, readyNodes=1), "waiting"),
        (cache("llama", VERIFIED, condition("Ready", "True"), image="registry.example/other:1"), "waiting"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cache_has_one_state(made: GKMCache, state: str) -> None:
    (found,) = summary.caches([made], []).caches
    assert found.state == state
    assert found.state in CACHE_STATES


def test_a_status_about_an_earlier_image_is_no_reason_for_the_present_one() -> None:
    """`gkm cache list` said so; the reason of an image that was replaced stood beside `waiting`."""
    refused = condition("Verified", "False", "SignatureMissing")
    (found,) = summary.caches([cache("llama", refused, PENDING, image="registry.example/other:1")], []).caches
    assert (found.state, found.cause) == ("waiting", "NotReported")


def test_the_reports_of_nodes_tell_pulling_from_waiting() -> None:
    made = cache("llama", VERIFIED, PENDING, totalNodes=6, readyNodes=1, failedNodes=0, incompatibleNodes=1)
    reports = [
        reported("a", "Downloading"),
        reported("b", "Extracting"),
        reported("c", "Ready"),
        reported("d", "Pending"),
        reported("e", "Downloading", "other"),
    ]
    (found,) = summary.caches([made], reports).caches
    assert found.state == "pulling"
    numbers = (found.ready_nodes, found.pulling_nodes, found.waiting_nodes, found.failed_nodes)
    assert (*numbers, found.incompatible_nodes) == (1, 2, 2, 0, 1)


def test_a_deleted_cache_is_neither_ready_nor_failed() -> None:
    made = cache("llama", VERIFIED, condition("Ready", "True"), totalNodes=1, readyNodes=1)
    gone = structs.replace(made, metadata=structs.replace(made.metadata, deletion_timestamp=OLD))
    assert [one.state for one in summary.caches([gone], []).caches] == ["deleting"]


def test_caches_are_counted_by_kind_with_their_generations_and_faults_come_first() -> None:
    ready = condition("Ready", "True")
    held = condition("HeldBack", "True")
    found = summary.caches(
        [
            cache("a", VERIFIED, ready, spec={"family": "f", "generation": 1}),
            cache("b", VERIFIED, ready, held, spec={"family": "f", "generation": 2, "pinned": True}),
            cache("c", condition("Verified", "False", "SignatureMissing"), PENDING),
            cache("d"),
        ],
        [],
    )
    (kind,) = found.kinds
    assert (kind.kind, kind.total, kind.families, kind.generations) == ("GKMCache", 4, 1, 2)
    assert (kind.pinned, kind.held_back) == (1, 1)
    assert {state: count for state, count in kind.states.items() if count} == {"ready": 2, "refused": 1, "waiting": 1}
    assert [(one.name, one.cause) for one in found.caches] == [
        ("c", "SignatureMissing"),
        ("d", "NotReported"),
        ("a", ""),
        ("b", ""),
    ]


def test_domains_have_the_health_that_the_labels_of_their_nodes_state() -> None:
    settings = Topology()
    clique, health = settings.labels.domain[0], settings.labels.health[0]
    uuid = "b4d4d4d4-0000-4000-8000-000000000001"
    listed = [
        *(node(f"a{word}", labels={clique: f"{uuid}.1", health: word}) for word in ("healthy", "degraded", "none")),
        node("b", labels={clique: f"{uuid}.2", health: "healthy"}),
        node("c", labels={clique: f"{uuid}.2"}),
        node("outside", labels={}, **GPUS),
        node("bad", labels={clique: "-not a label-"}),
        node("cpu", labels={}),
    ]
    found = summary.fabric_domains(listed, settings)
    assert found.domains == (FabricDomain(f"{uuid}.1", 3, 1, 1, 1), FabricDomain(f"{uuid}.2", 2, 1, 0, 1))
    assert (found.outside, found.invalid) == (1, ("bad",))


def compute_domain(name: str, ready: Json | None = None, **metadata: str) -> ComputeDomain:
    annotations = {"gkm.io/mnnvl-ready": json.dumps(ready)} if ready else {}
    made = {"name": name, "namespace": "team", "annotations": annotations, **metadata}
    return convert({"metadata": made}, ComputeDomain)


def test_a_compute_domain_is_ready_only_if_the_controllers_say_so() -> None:
    fields = {"expected": 4, "joined": 3, "ready": 2}
    found = summary.workload_domains(
        [
            compute_domain("ready", condition("MNNVLReady", "True") | fields),
            compute_domain("unused", condition("MNNVLReady", "False", "WaitingForPods")),
            compute_domain("not-ready", condition("MNNVLReady", "False", "NodesIsolated") | fields),
            compute_domain("silent"),
            compute_domain("gone", condition("MNNVLReady", "True") | fields, deletionTimestamp=OLD),
        ]
    )
    assert {one.name: one.state for one in found} == {
        "ready": "ready",
        "unused": "unused",
        "not-ready": "not ready",
        "silent": "not reported",
        "gone": "terminating",
    }
    assert [one.name for one in found][-2:] == ["ready", "unused"]
    assert [(one.expected, one.joined, one.ready) for one in found if one.name == "ready"] == [(4, 3, 2)]


def run(name: str, *conditions: Json, **status: Any) -> Run:  # noqa: ANN401 -- fields of the status
    made = {"kind": "Run", "metadata": {"name": name, "namespace": "ml"}, "spec": {"flavor": "h100", "gpus": 16}}
    return convert(made | {"status": {"conditions": list(conditions), **status}}, Run)


def test_a_run_has_a_plan_waits_or_does_not_fit() -> None:
    planned = run("planned", condition("Planned", "True"), planRef={"name": "planned-1"}, gpus=16, domains=2)
    found = summary.runs([planned, run("refused", condition("Planned", "False", "DoesNotFit")), run("silent")])
    assert [(one.name, one.state, one.reason, one.plan) for one in found] == [
        ("refused", "not planned", "DoesNotFit", ""),
        ("silent", "waits", "NotReported", ""),
        ("planned", "planned", "Because", "planned-1"),
    ]
    assert (found[-1].gpus, found[-1].planned_gpus, found[-1].domains) == (16, 16, 2)


def test_findings_are_counted_by_check_the_problems_first() -> None:
    def made(check: str, severity: Severity) -> Result:
        return Result(check, Finding(severity, "", "d"))

    found = summary.problems(
        [
            made("a/ok", Severity.OK),
            made("b/skipped", Severity.SKIPPED),
            made("c/warns", Severity.WARNING),
            made("d/unknown", Severity.NOT_CHECKED),
            made("e/bad", Severity.PROBLEM),
            made("e/bad", Severity.PROBLEM),
        ],
        ["images/signatures"],
    )
    assert (found.checks, found.problems, found.warnings, found.not_checked) == (5, 2, 1, 1)
    assert [each.check for each in found.found] == ["e/bad", "d/unknown", "c/warns"]
    assert found.left_out == ("images/signatures",)


def test_a_status_without_conditions_is_not_reported() -> None:
    made = structs.replace(cache(), status=CacheStatus())
    (found,) = summary.caches([made], []).caches
    assert (found.state, found.cause) == ("waiting", "NotReported")
