"""`gkm why` about image volumes: the delivery, the pull by kubelet, and the digest that a pod keeps."""

import json
from typing import Any

import pytest
from gkm.kube.resources import GKMCACHES
from gkm_cli.why import image_volumes
from gkm_cli.why.facts import CacheName, PodFacts
from gkm_cli.why.links import LinkResult, State, walk
from gkm_cli.why.observation import Observation
from msgspec import convert
from support.kube.fake_api import FakeApi
from support.operator.workloads import as_json

IMAGE = "registry.test/team/llama:1"
DIGEST, OLDER = (f"sha256:{letter * 64}" for letter in "ab")
REFERENCE = f"registry.test/team/llama@{DIGEST}"
INJECTED = {"cache": "GKMCache team/llama", "volume": "gkm-cache", "member": "llama-2", "delivery": "image"}
RUNNING = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}


def pod(reference: str = REFERENCE, status: Any = RUNNING, report: str = "", **spec: Any) -> PodFacts:  # noqa: ANN401 -- JSON
    mounts = [{"name": "gkm-cache", "mountPath": "/cache", "subPath": "io.triton.cache"}]
    made = {
        "metadata": {
            "name": "server",
            "namespace": "team",
            "annotations": {"gkm.io/injected": report or json.dumps({"caches": [INJECTED]})},
        },
        "spec": {
            "nodeName": "node-a",
            "containers": [{"name": "main", "volumeMounts": mounts}],
            "volumes": [{"name": "gkm-cache", "image": {"reference": reference}}],
            **spec,
        },
        "status": status,
    }
    return convert(made, type=PodFacts)


def steps(found: PodFacts, verified: str = "True") -> dict[str, LinkResult]:
    api, resource = FakeApi(), as_json(GKMCACHES)
    meta = {"name": "llama-2", "namespace": "team"}
    made = {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache", "metadata": meta, "spec": {"image": IMAGE}}
    api.create(resource, made)
    condition = {"type": "Verified", "status": verified, "reason": "Said", "message": "so"}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    status = {"image": IMAGE, "resolvedDigest": DIGEST, "conditions": [condition]}
    written = {each: made[each] for each in ("apiVersion", "kind", "metadata")} | {"status": status}
    api.apply(resource, written, field_manager="gkm-controllers", subresource="status")
    (facts,) = Observation(api).image_facts(found)
    return {step.link: step for step in walk(facts, image_volumes.LINKS, image_volumes.NEEDS)}


def test_every_link_of_a_running_pod_holds_and_names_the_delivery() -> None:
    found = steps(pod())
    assert {step.state for step in found.values()} == {State.OK}
    assert found["volume"].detail == (
        "GKMCache team/llama-2 by an image volume (delivery: image), mounted by main at /cache"
    )
    assert found["mount"].detail == f"{REFERENCE} is mounted, read-only"


def test_a_failed_pull_is_told_in_the_words_of_kubelet() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "401 Unauthorized"}
    status = {"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": waiting}}]}
    mount = steps(pod(status=status))["mount"]
    assert mount.state is State.BROKEN
    assert mount.detail == f"{REFERENCE} is not mounted: ImagePullBackOff: 401 Unauthorized"
    assert "kubectl describe pod server -n team" in mount.hint


def test_a_pod_keeps_the_digest_from_before_an_update() -> None:
    older = f"registry.test/team/llama@{OLDER}"
    mount = steps(pod(older))["mount"]
    assert (mount.state, mount.detail) == (State.BROKEN, f"the pod has {older}, from before the cache changed")


def test_a_verdict_that_was_lost_breaks_the_signature() -> None:
    found = steps(pod(), verified="False")
    assert (found["signature"].state, found["signature"].detail) == (State.BROKEN, "Said: so")


def test_a_pod_without_a_node_has_no_mount() -> None:
    found = steps(pod(status={"phase": "Pending"}, nodeName=""))
    assert (found["node"].state, found["mount"].state) == (State.BROKEN, State.SKIPPED)


def test_a_volume_that_no_container_mounts_is_told() -> None:
    volume = steps(pod(containers=[{"name": "main"}]))["volume"]
    assert (volume.state, volume.detail) == (State.BROKEN, "no container mounts the volume gkm-cache")


@pytest.mark.parametrize(
    "report",
    [
        "{",
        "[]",
        json.dumps({"caches": [INJECTED | {"volume": "other"}]}),
        json.dumps({"caches": [INJECTED | {"delivery": "csi"}]}),
        json.dumps({"caches": [INJECTED | {"member": ""}]}),
        json.dumps({"caches": [INJECTED]}) + " " * (32 << 10),
    ],
    ids=["no JSON", "another form", "another volume", "a volume of the driver", "no member", "too long"],
)
def test_a_report_that_names_no_image_volume_has_no_links(report: str) -> None:
    assert list(image_volumes.members(pod(report=report))) == []


def test_the_volume_of_a_cluster_cache_is_of_the_cluster() -> None:
    report = json.dumps({"caches": [INJECTED | {"volume": "gkm-cluster-cache"}]})
    volumes = [{"name": "gkm-cluster-cache", "image": {"reference": REFERENCE}}]
    assert list(image_volumes.members(pod(report=report, volumes=volumes))) == [
        ("gkm-cluster-cache", CacheName(None, "llama-2"))
    ]
