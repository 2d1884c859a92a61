"""The usage of pods, updated by changes, equals a count of all pods."""

from typing import Any

import msgspec
from gkm.topology.eligibility import PodDemand
from gkm.topology.pods import NodeLoad, Pod
from gkm.topology.usage import usage
from gkm_operator.plans.state.free_capacity import PodUsage, PodUsageIndex, Reservations, excess
from gkm_operator.plans.state.objects import RunKey
from gkm_operator.pods import WatchedPod
from hypothesis import given
from hypothesis import strategies as st
from support.operator.plans import gpu_pod
from support.operator.plans_made import a_pod

R = RunKey("team", "r")
MINE = {"namespace": "team", "labels": {"gkm.io/run": "r"}}
_PODS = st.tuples(
    st.sampled_from(["p", "q", "s"]),
    st.sampled_from(["n1", "n2", ""]),
    st.sampled_from([0, 1, 8, -1]),
    st.sampled_from(["", "r", "s"]),
    st.sampled_from(["Running", "Succeeded", "Pending"]),
)


def whole(name: str, node: str, gpus: int, run: str, phase: str) -> dict[str, Any]:
    return gpu_pod(name, node, gpus, run) | {"status": {"phase": phase}}


@given(st.lists(st.tuples(_PODS, st.booleans()), max_size=30))
def test_the_sums_equal_those_of_the_existing_pods(steps: list[tuple[Any, bool]]) -> None:
    ledger, there = PodUsageIndex(), dict[str, dict[str, Any]]()
    read: dict[str, WatchedPod] = {}
    for parts, gone in steps:
        pod = whole(*parts)
        name = pod["metadata"]["name"]
        old = read.pop(name, None)
        there.pop(name, None)
        new = None
        if not gone:
            new = msgspec.json.decode(msgspec.json.encode(pod), type=WatchedPod)
            there[name], read[name] = pod, new
        ledger.change(old, new)
    expected = usage(msgspec.convert(pod, Pod) for pod in there.values())
    taken = ledger.usage()
    assert taken.usage.gpus == expected.gpus
    assert taken.usage.faults.keys() == expected.faults.keys()
    assert taken.usage.loads == expected.loads
    for run, own in taken.runs.items():
        of_run = [pod for pod in there.values() if pod["metadata"].get("labels", {}).get("gkm.io/run") == run.name]
        assert own == usage(msgspec.convert(pod, Pod) for pod in of_run).gpus


def test_a_change_of_no_sum_is_not_reported() -> None:
    ledger, pod = PodUsageIndex(), a_pod("p", "n", 8)
    assert ledger.change(None, pod)
    assert not ledger.change(pod, a_pod("p", "n", 8, status={"phase": "Pending", "message": "other"}))
    assert not ledger.change(None, a_pod("q", "n", 0, "r"))
    assert ledger.change(pod, a_pod("p", "n", 8, "r"))
    assert ledger.usage().of(R) == {"n": 8}


def test_an_undecodable_pod_is_a_fault_of_its_node_if_it_has_one() -> None:
    ledger = PodUsageIndex()
    many: dict[str, Any] = {"containers": [{}] * 5000}
    ledger.change(None, a_pod("p", "n", 8, spec={"nodeName": "n"} | many))
    ledger.change(None, a_pod("q", "n", 8, spec=many))
    ledger.change(None, a_pod("s", "n", 8, spec={"nodeName": "n2"} | many, status={"phase": "Failed"}))
    assert list(ledger.usage().usage.faults) == ["n"]


def test_a_run_does_not_count_its_own_pods() -> None:
    ledger = PodUsageIndex()
    ledger.change(None, a_pod("p", "n", 8, "r"))
    ledger.change(None, a_pod("q", "n", 4))
    assert ledger.usage().without(R).gpus == {"n": 4}
    assert ledger.usage().usage.gpus == {"n": 12}
    assert PodUsage().without(R).gpus == {}


def test_a_pod_that_is_being_deleted_uses_gpus_and_holds_none() -> None:
    ledger = PodUsageIndex()
    pod = a_pod("p", "n", 8, "r")
    ending = a_pod("p", "n", 8, "r", metadata={**MINE, "name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"})
    ledger.change(None, pod)
    ledger.change(None, a_pod("q", "n", 4, "r"))
    assert ledger.usage().held(R) == {"n": 12}
    assert ledger.change(pod, ending)
    assert (ledger.usage().of(R), ledger.usage().held(R)) == ({"n": 12}, {"n": 4})
    ledger.change(ending, None)
    assert (ledger.usage().terminating, ledger.usage().held(R)) == ({}, {"n": 4})


def test_a_reservation_is_the_plan_less_the_pods_and_never_negative() -> None:
    claims = {"a": 8, "b": 8, "c": 8}
    assert excess(claims, {"b": 4, "c": 16, "d": 8}) == {"a": 8, "b": 4}


def test_reservations_have_what_the_pods_request_that_they_are_for() -> None:
    other = RunKey("team", "s")
    of_four = PodDemand(4, cpu=2_000, memory=8_000)
    held = Reservations({R: {"a": 8, "b": 6}, other: {"a": 1}}, {R: of_four, other: PodDemand(1)})
    assert held.loads == {"a": NodeLoad(4_000, 16_000, 3), "b": NodeLoad(4_000, 16_000, 2)}
    assert held.loads_without(R) == {"a": NodeLoad(0, 0, 1), "b": NodeLoad()}
    before = held.version
    held.put(R, {"a": 8, "b": 6}, PodDemand(4))
    assert held.version != before, "a run that was refused for CPUs is tried again"


def test_reservations_are_summed_and_replaced() -> None:
    other = RunKey("team", "s")
    held = Reservations({R: {"a": 8}, other: {"a": 4, "b": 4}})
    assert held.total == {"a": 12, "b": 4}
    before = held.version
    assert held.without(R) == {"a": 4, "b": 4}
    held.put(R, {"b": 1})
    assert held.total == {"a": 4, "b": 5}
    assert held.version != before
    held.put(R, {"a": 8})
    assert held.version == before
