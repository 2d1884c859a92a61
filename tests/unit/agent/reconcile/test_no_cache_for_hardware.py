"""Pods that wait for a cache, or started without it, because it fits no GPU of the node: in status and metrics."""

import os
import time

import pytest
from gkm.gpus.values import Inventory
from gkm.hoststate import waiting_pods
from gkm_agent.telemetry import metrics
from support.agent.fakes import A100, H100
from support.agent.node import REF, Node


def caches(pods: str) -> float | None:
    return metrics.REGISTRY.get_sample_value("gkm_no_cache_for_hardware", {"pods": pods})


def test_pods_of_a_cache_that_fits_no_gpu_are_reported(node: Node) -> None:
    node.read_gpus(Inventory((A100,)))
    node.want("llama")
    node.settle()
    assert (node.status().state, node.status().pods_without_cache, node.status().pod_waits) == (
        "Incompatible",
        0,
        False,
    )
    assert (caches("waiting"), caches("started")) == (0, 0)

    for volume in ("csi-1", "csi-2"):
        node.mount("", volume)
    waiting_pods.mark_waiting(node.layout, REF)
    node.settle()
    assert (node.status().pods_without_cache, node.status().pod_waits) == (2, True)
    assert (caches("waiting"), caches("started")) == (1, 1)
    assert node.status().pods == []

    node.unmount("csi-1")
    node.unmount("csi-2")
    waiting_pods.clear_waiting(node.layout, REF)
    node.settle()
    assert (node.status().pods_without_cache, node.status().pod_waits) == (0, False)


@pytest.mark.parametrize("gpus", [(H100,), (H100, A100)])
def test_pods_that_started_before_a_cache_was_ready_are_not(node: Node, gpus: tuple[object, ...]) -> None:
    node.read_gpus(Inventory(gpus))  # type: ignore[arg-type]
    node.want("llama")
    node.mount("", "csi-1")
    waiting_pods.mark_waiting(node.layout, REF)
    node.settle()
    assert (node.status().state, node.status().pods_without_cache, node.status().pod_waits) == ("Ready", 0, False)


def test_a_mark_from_before_the_clock_was_set_back_is_no_waiting_pod(node: Node) -> None:
    waiting_pods.mark_waiting(node.layout, REF)
    assert waiting_pods.is_pod_waiting(node.layout, REF)
    later = time.time() + 8 * 3600
    os.utime(node.layout.waiting_file(REF), (later, later))
    assert not waiting_pods.is_pod_waiting(node.layout, REF), "its pod is reported as waiting for eight hours"
