"""Pods are reduced to what decides about ComputeDomains, and only those that matter are stored."""

import json
from typing import Any

import msgspec
import pytest
from gkm.api.network_settings import Network
from gkm.hoststate.pacing import Backoff
from gkm.kube.informers import Informers
from gkm.kube.resources import Json, Resource
from gkm_operator.computedomains.watcher import DomainPods
from gkm_operator.mnnvl.gpu_requests import GPURequests
from gkm_operator.pods import PodStatus, WatchedPod
from msgspec import Raw
from support.grove.pods import pod
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.kube.listing import reflector_of

GPUS = GPURequests(Network())
RAW: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=dict)


def read(value: Json) -> WatchedPod:
    return msgspec.json.decode(json.dumps(value), type=WatchedPod)


def test_the_fields_that_decide_are_stored_and_no_others() -> None:
    made = read(pod("a", template="domain", node="n1", domain="domain", phase="Running", annotations={"x": "y" * 9999}))
    assert (made.key, made.node, made.domain) == (("team", "a"), "n1", "domain")
    assert (made.templates, made.resources, made.ended) == (frozenset({"domain"}), ("nvidia.com/gpu",), False)
    assert made.metadata.creation_timestamp == "2026-01-01T00:00:00Z"
    assert made.started == "2026-01-01T00:01:00Z"
    assert (made.spec, made.status) == (Raw(b"{}"), PodStatus())


def test_replicas_of_one_workload_share_their_owners_and_claims() -> None:
    first, second = (read(pod(name, template="t", owner="job")) for name in "ab")
    assert first.claims is second.claims
    assert first.metadata.owner_references is second.metadata.owner_references


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"template": "t", "gpus": 0}, True),
        ({"domain": "d", "gpus": 0}, True),
        ({"node": "n1"}, True),
        ({"node": ""}, False),  # requests GPUs, and waits
        ({"node": "n1", "gpus": 0}, False),
        ({"template": "t", "phase": "Succeeded"}, False),
        ({"domain": "d", "phase": "Failed"}, False),
        ({"node": "n1", "phase": "Failed"}, False),
        ({"template": "t", "phase": "Running", "terminating": True}, True),
    ],
)
def test_pods_that_matter(fields: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 -- a column of the table
    assert DomainPods(Informers(FakeApi()), GPUS).matters(read(pod("a", **fields))) is expected


def test_the_indexes_follow_the_pods_of_the_cluster() -> None:
    api = FakeApi()
    seen: list[tuple[bool, bool]] = []
    watched = DomainPods(Informers(api), GPUS)
    watched.changed.append(lambda old, new: seen.append((old is not None, new is not None)))
    reflector_of(watched.watch)._backoff = Backoff(0.001, 0.002)
    api.create(RAW, pod("a", template="t", domain="d"))
    api.create(RAW, pod("other", gpus=0))
    watched.watch.start()
    try:
        assert watched.watch.synced.wait(scaled(10))
        assert [found.key for found in watched.using("team", "t")] == [("team", "a")]
        assert [found.key for found in watched.labeled("team", "d")] == [("team", "a")]
        assert watched.using("elsewhere", "t") == ()
        api.merge(RAW, "a", {"spec": {"nodeName": "n1"}}, "team")
        until(lambda: len(watched.on_node("n1")) == 1, "the pod on its node")
        api.merge(RAW, "a", {"metadata": {"annotations": {"x": "y"}}}, "team")
        api.delete(RAW, "a", "team")
        until(lambda: not watched.using("team", "t"), "the pod to go")
        assert (watched.labeled("team", "d"), watched.on_node("n1")) == ((), ())
    finally:
        watched.watch.close()
    assert seen == [(False, True), (True, True), (True, False)]
