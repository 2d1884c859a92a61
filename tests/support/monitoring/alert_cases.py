"""For each alert, series that make it fire and the nearest ones that do not, as promtool's unit tests have them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from support.monitoring.alert_series import (
    AGENT,
    AGENT_STARTED,
    ALWAYS,
    BACKGROUND,
    BUILD,
    CHECKED,
    LAST,
    MOUNTS,
    OF_A,
    OF_AGENT,
    PASSED,
    PULLED,
    READY,
    REVIEWS,
    TRUSTED,
    UP,
    Series,
    changed,
    grows,
    held,
    once_at,
    reconciles,
    requests,
    restarted_each,
    reviews,
    scraped_twice,
    seconds,
    state,
    time_stopped,
)


@dataclass(frozen=True)
class Case:
    """An alert, the labels with which it fires in the end, and series with which it does not.

    `also`: other series that make it fire with these labels, such as a success that never was, or a second scrape.
    """

    alert: str
    fires: Series
    labels: str
    quiet: tuple[Series, ...]
    also: tuple[Series, ...] = ()


CASES = (
    Case("GKMTargetDown", {UP: held(0)}, '{namespace="gkm-system",pod="a"}', ({UP: held(1)}, {UP: changed(1, 5, 0)})),
    Case(
        "GKMAgentStuck",
        {AGENT: held(1), PASSED % OF_AGENT: time_stopped(9)},
        '{node="n",pod="n"}',
        (
            {AGENT: held(1), PASSED % OF_AGENT: time_stopped(4)},
            # It restarted four minutes ago, and has not finished its first pass.
            {AGENT: held(1), AGENT_STARTED: changed(0, 4, 60 * (ALWAYS - 4)), PASSED % OF_AGENT: f"0+60x{ALWAYS - 5}"},
            {f'{LAST}{{task="pull",node="a"}}': held(0)},
            {PASSED % OF_AGENT: time_stopped(0), AGENT: held(1), AGENT_STARTED: held(0)},
        ),
        also=(
            {AGENT: held(1), AGENT_STARTED: held(0)},
            # It hangs after each start, and kubelet restarts it: the last time four minutes ago.
            {AGENT: held(1), AGENT_STARTED: restarted_each(13)},
            scraped_twice({AGENT: held(1), AGENT_STARTED: held(0), PASSED % OF_AGENT: time_stopped(9)}),
        ),
    ),
    Case(
        "GKMNotReady",
        {'gkm_ready{program="gkm-agent",node="n",pod="n"}': held(0)},
        '{node="n",pod="n",program="gkm-agent"}',
        (
            {'gkm_ready{program="gkm-agent",node="n",pod="n"}': held(1)},
            {'gkm_ready{program="gkm-agent",node="n",pod="n"}': changed(1, 10, 0)},
        ),
        also=(scraped_twice({'gkm_ready{program="gkm-agent",node="n",pod="n"}': held(0)}),),
    ),
    Case(
        "GKMGPUsUnreadable",
        {'gkm_nvml_errors_total{node="a",call="nvmlInit"}': grows(1)},
        '{node="a",call="nvmlInit"}',
        ({'gkm_nvml_errors_total{node="a",call="nvmlInit"}': held(7)},),
    ),
    Case(
        "GKMVersionsDiffer",
        {'gkm_build_info{program="gkm-agent",version="2"}': held(1)},
        "{}",
        ({'gkm_build_info{program="gkm-agent",version="1"}': held(1)},),
    ),
    Case(
        "GKMCacheFailed",
        {state("ContentMismatch"): held(2)},
        '{node="a",reason="ContentMismatch"}',
        (
            {state("ContentMismatch"): held(0)},
            {state("DiskFull"): held(1)},
            {state("SignatureInvalid"): held(1)},
            {state("AttestationMissing"): held(1)},
            {state("NoGPU", "Incompatible"): held(1)},
            {state("ContentMismatch"): changed(1, 60, 0)},
        ),
    ),
    Case(
        "GKMCacheRefused",
        {state("SignatureMissing", "Pending"): held(1)},
        '{reason="SignatureMissing"}',
        ({state("RegistryUnavailable", "Pending"): held(1)},),
    ),
    Case(
        "GKMCacheWithoutNode",
        {'gkm_caches{ready="NodesIncompatible"}': held(1)},
        '{ready="NodesIncompatible"}',
        ({'gkm_caches{ready="NodesPending"}': held(1)}, {'gkm_caches{ready="NoMatchingNodes"}': held(0)}),
        ({'gkm_caches{ready="NodesIncompatible"}': held(1), 'gkm_caches{ready="AllNodesReady"}': held(4)},),
    ),
    Case("GKMStoreFull", {state("DiskFull"): held(1)}, '{node="a"}', ({state("NodeError"): held(1)},)),
    Case(
        "GKMPullStuck",
        {'gkm_cache_state{node="a",state="Downloading"}': held(1), PULLED: held(9)},
        '{node="a"}',
        (
            {'gkm_cache_state{node="a",state="Downloading"}': held(1), PULLED: grows(1)},
            {'gkm_cache_state{node="a",state="Ready"}': held(1), PULLED: held(9)},
        ),
    ),
    Case(
        "GKMMountsFailing",
        {f'{MOUNTS}_count{{node="a",code="INTERNAL"}}': grows(1)},
        '{node="a",code="INTERNAL"}',
        (
            {f'{MOUNTS}_count{{node="a",code="UNAVAILABLE"}}': grows(1)},
            {f'{MOUNTS}_count{{node="a",code="OK"}}': grows(1)},
            {f'{MOUNTS}_count{{node="a",code="INVALID_ARGUMENT"}}': grows(1)},
            {f'{MOUNTS}_count{{node="a",code="PERMISSION_DENIED"}}': grows(1)},
            {f'{MOUNTS}_count{{node="a",code="INTERNAL"}}': held(3)},
        ),
    ),
    Case(
        "GKMMountsSlow",
        seconds(MOUNTS, 5, 'code="OK",node="a"'),
        '{node="a"}',
        (seconds(MOUNTS, 0.5, 'code="OK",node="a"'), seconds(MOUNTS, 5, 'code="INTERNAL",node="a"')),
    ),
    Case("GKMNoLeader", {'gkm_leader{pod="a"}': held(0)}, "{}", ({'gkm_leader{pod="a"}': changed(1, 3, 0)},)),
    Case(
        "GKMTwoLeaders",
        {'gkm_leader{pod="b"}': held(1)},
        "{}",
        ({}, {'gkm_leader{job="second",pod="a"}': held(1)}),
        also=(scraped_twice({'gkm_leader{pod="b"}': held(1)}),),
    ),
    Case(
        "GKMPartNotInstalled",
        {'gkm_installed{part="csi"}': held(0)},
        '{part="csi"}',
        ({'gkm_installed{part="csi",pod="a"}': held(1), 'gkm_installed{part="csi",pod="b"}': held(0)},),
    ),
    Case(
        "GKMInstallationUnchecked",
        {CHECKED % OF_A: time_stopped(25)},
        "{}",
        (
            {CHECKED % OF_A: time_stopped(12)},
            # The leader has just started.
            {'process_start_time_seconds{pod="a"}': held(60 * (ALWAYS - 5))},
        ),
        also=(
            # Never since the start, for want of the right; and a replica that does not lead has just started.
            {},
            {'process_start_time_seconds{pod="b"}': held(60 * (ALWAYS - 5))},
            scraped_twice({CHECKED % OF_A: time_stopped(25)}),
        ),
    ),
    Case(
        "GKMReconcileFailed",
        {reconciles("failed"): once_at(ALWAYS - 10)},
        '{controller="verify"}',
        ({reconciles("failed"): held(5)}, {reconciles("again"): grows(1)}),
    ),
    Case(
        "GKMAPIErrors",
        {requests("500"): grows(2), requests("200"): grows(8)},
        '{pod="a"}',
        (
            {requests("500"): grows(1), requests("200"): grows(19)},
            {requests("404"): grows(9), requests("200"): grows(1)},
        ),
    ),
    Case(
        "GKMAdmissionDown",
        {BUILD: "1x60", READY: "1x60"},
        "{}",
        ({}, {READY.replace('"a"', '"b"'): held(0)}, {READY: changed(1, 4, 0)}),
        # Processes that answer, and that API servers do not trust.
        also=({READY: held(0)},),
    ),
    Case(
        "GKMAdmissionSlow",
        seconds(REVIEWS, 10, 'kind="GKMCache"'),
        '{kind="GKMCache"}',
        (seconds(REVIEWS, 5, 'kind="GKMCache"'),),
        also=(
            {
                **seconds(REVIEWS, 10, 'kind="GKMCache"'),
                f'{REVIEWS}_bucket{{le="0.5",kind="Pod"}}': grows(9999),
                f'{REVIEWS}_bucket{{le="+Inf",kind="Pod"}}': grows(9999),
            },
        ),
    ),
    Case(
        "GKMAdmissionLate",
        {reviews("late"): grows(1), reviews("admitted"): grows(4)},
        "{}",
        ({reviews("late"): grows(1), reviews("admitted"): grows(19)},),
        also=({reviews("late"): grows(1), reviews("admitted", "Pod"): grows(20)},),
    ),
    Case(
        "GKMAdmissionCertificate",
        {TRUSTED % OF_A: time_stopped(25)},
        '{pod="a"}',
        (
            {TRUSTED % OF_A: time_stopped(12)},
            {READY: held(0), 'process_start_time_seconds{pod="a"}': held(60 * (ALWAYS - 12))},
            # With cert-manager: ready, and no such task.
            {f'{LAST}{{task="review",pod="a"}}': held(0)},
        ),
        also=({READY: held(0)}, scraped_twice({READY: held(0), TRUSTED % OF_A: time_stopped(25)})),
    ),
    Case(
        "GKMComputeDomainsNotReady",
        {'gkm_computedomains{state="missing"}': held(3)},
        '{state="missing"}',
        ({'gkm_computedomains{state="waiting"}': held(3)}, {'gkm_computedomains{state="notReady"}': changed(0, 20, 1)}),
    ),
    Case(
        "GKMComputeDomainsLost",
        {'gkm_computedomains{state="lost"}': held(1)},
        "{}",
        ({'gkm_computedomains{state="terminating"}': held(1)},),
    ),
    Case(
        "GKMTaskGroupObjectsLeaked",
        {'gkm_task_group_objects_total{result="leaked"}': once_at(ALWAYS - 30)},
        "{}",
        (
            {'gkm_task_group_objects_total{result="leaked"}': held(4)},
            {'gkm_task_group_objects_total{result="deleted"}': grows(1)},
        ),
    ),
    Case(
        "GKMTopologyProviderFailed",
        {'gkm_topology_provider_state{provider="ufm",state="Failed"}': held(1)},
        '{provider="ufm"}',
        ({'gkm_topology_provider_state{provider="ufm",state="Starting"}': held(1)},),
    ),
    Case(
        "GKMTopologyDataOld",
        {'gkm_topology_provider_lag_seconds{provider="ufm"}': held(3700)},
        '{provider="ufm"}',
        ({'gkm_topology_provider_lag_seconds{provider="ufm"}': held(600)},),
    ),
    Case(
        "GKMTopologyChangeHeld",
        {"gkm_topology_guard_trips_total": changed(0, 30, 1)},
        "{}",
        ({"gkm_topology_guard_trips_total": held(1)},),
    ),
    Case("GKMTopologyConflicts", {"gkm_topology_conflicts": held(2)}, "{}", ({"gkm_topology_conflicts": held(0)},)),
    Case(
        "GKMNodesQuarantined",
        {'gkm_topology_tree_nodes{state="contradictory"}': held(2), 'gkm_topology_nodes{state="quarantined"}': held(0)},
        "{}",
        ({'gkm_topology_nodes{state="bare"}': held(2)},),
    ),
    Case(
        "GKMPlansFailed",
        {'gkm_plan_total{result="failed",reason="PlannerFailed"}': once_at(ALWAYS - 10)},
        '{reason="PlannerFailed"}',
        ({'gkm_plan_total{result="refused",reason="DoesNotFit"}': grows(1)},),
    ),
    Case(
        "GKMPlansDrift",
        {'gkm_plan_drift_gpus{pod="a"}': held(16)},
        "{}",
        # A new plan followed the pods.
        ({'gkm_plan_drift_gpus{pod="a"}': held(0)}, {'gkm_plan_drift_gpus{pod="a"}': changed(16, 12, 0)}),
        also=(scraped_twice({'gkm_plan_drift_gpus{pod="a"}': held(16)}),),
    ),
)


def promtool_tests(case: Case, rules: str) -> dict[str, Any]:
    """Return the file for `promtool test rules` that tests one alert."""
    return {"rule_files": [rules], "evaluation_interval": "1m", "tests": list(_tests(case))}


def _tests(case: Case) -> Iterator[dict[str, Any]]:
    firing = [{"labels": case.labels, "value": 1}]
    fires = [(series, firing) for series in (case.fires, *case.also)]
    for series, expected in [*fires, *((each, []) for each in case.quiet)]:
        alerts = f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}'
        expression = f"sum without (alertname, alertstate, severity) ({alerts})"
        yield {
            "interval": "1m",
            "input_series": [{"series": name, "values": text} for name, text in {**BACKGROUND, **series}.items()],
            "promql_expr_test": [{"expr": expression, "eval_time": f"{ALWAYS}m", "exp_samples": expected}],
        }
