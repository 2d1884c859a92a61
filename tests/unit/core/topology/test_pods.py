"""The GPUs of a node that a pod uses."""

import pytest
from gkm.topology.pods import Pod, occupies_node, requested_gpus
from gkm.topology.usage import usage
from msgspec import convert
from support.topology.kube_lists import GPU, container, pod


def test_containers_run_together() -> None:
    assert requested_gpus(pod("p", "n", container("2"), container("1"))) == 3


def test_init_containers_run_one_after_another_before_them() -> None:
    assert requested_gpus(pod("p", "n", container("2"), init=[container("3"), container("4")])) == 4
    assert requested_gpus(pod("p", "n", container("5"), init=[container("3"), container("4")])) == 5


def test_sidecars_stay_beside_what_starts_after_them() -> None:
    sidecar = container("1", restarts="Always")

    assert requested_gpus(pod("p", "n", container("2"), init=[sidecar])) == 3
    assert requested_gpus(pod("p", "n", container("2"), init=[sidecar, container("4")])) == 5
    assert requested_gpus(pod("p", "n", container("2"), init=[container("4"), sidecar])) == 4


def test_overhead_comes_on_top() -> None:
    found = convert({"spec": {"containers": [container("2")], "overhead": {GPU: "1"}}}, Pod)

    assert requested_gpus(found) == 3


def test_a_limit_without_a_request_counts_as_the_request() -> None:
    assert requested_gpus(convert({"spec": {"containers": [{"resources": {"limits": {GPU: 2}}}]}}, Pod)) == 2


@pytest.mark.parametrize("spec", [{}, {"containers": None}, {"containers": [{}]}, {"containers": [{"resources": {}}]}])
def test_a_pod_without_gpu_requests_uses_none(spec: object) -> None:
    assert requested_gpus(convert({"spec": spec}, Pod)) == 0


@pytest.mark.parametrize("phase", ["Running", "Pending", "Unknown", ""])
def test_a_pod_uses_its_node_while_it_may_run(phase: str) -> None:
    assert occupies_node(pod("p", "n", phase=phase))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_uses_nothing(phase: str) -> None:
    assert not usage([pod("p", "n", container("2"), phase=phase)]).gpus


def test_a_pod_without_a_node_uses_nothing() -> None:
    assert not usage([pod("p", "", container("2"))]).gpus


def test_pods_of_a_node_add_up_and_nodes_without_any_are_absent() -> None:
    pods = [pod("p1", "n1", container("2")), pod("p2", "n1", container("1")), pod("p3", "n2", container("0"))]

    assert usage(pods).gpus == {"n1": 3}


def test_a_pod_that_two_lists_have_counts_once() -> None:
    assert usage([pod("p", "n", container("2")), pod("p", "n", container("2"))]).gpus == {"n": 2}


@pytest.mark.parametrize("asked", ["NaN", "-1", "0.5", "9999999"])
def test_a_pod_with_an_invalid_quantity_is_a_fault_of_its_node_alone(asked: str) -> None:
    found = usage([pod("bad", "n1", container(asked)), pod("good", "n2", container("2"))])

    assert found.gpus == {"n2": 2}
    assert list(found.faults) == ["n1"]
    assert "pod ml/bad" in found.faults["n1"]


def test_of_several_faults_of_a_node_the_alphabetically_first_is_reported() -> None:
    pods = [pod(name, "n1", container("NaN")) for name in "cab"]

    assert usage(pods).faults == usage(pods[::-1]).faults
    assert "pod ml/a " in usage(pods).faults["n1"]
