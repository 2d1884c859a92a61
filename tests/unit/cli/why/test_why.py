"""`gkm why` without a cluster: remedies for all reasons, names of caches, and the page."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from gkm.api.caches import CacheSpec, CacheStatus, GKMCache
from gkm.api.errors import Reason
from gkm.api.meta import Condition, ObjectMeta
from gkm.api.nodes import GKMCacheNode, NodeCacheStatus, NodeSpec, NodeStatus, PodUse
from gkm.kube import decoding
from gkm.kube.errors import ApiError
from gkm_cli.clusters.reads import Unreadable
from gkm_cli.inputs.pods import (
    ContainerFacts,
    CSIVolume,
    PodSpecFacts,
    RegisteredDrivers,
    VariableFacts,
    VolumeFacts,
    VolumeMountFacts,
)
from gkm_cli.why import programs
from gkm_cli.why.facts import (
    CacheName,
    ContainerState,
    ContainerStatus,
    Facts,
    PodFacts,
    PodStatusFacts,
    ReadResult,
    Terminated,
)
from gkm_cli.why.injection import no_volume
from gkm_cli.why.links import LINKS, State, remedy, walk
from gkm_cli.why.observation import PODS, Observation, cache_name
from msgspec import structs
from msgspec.json import decode
from support.kube.fake_api import FakeApi

T = TypeVar("T")

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "why.md"
GOOD = {Reason.COSIGN_SUCCESS, Reason.NOT_REQUIRED, Reason.UPDATE_REFUSED}
NOW = "2026-11-23T00:00:00Z"
HANDLE = f"csi-{hashlib.sha256(b'kernels').hexdigest()}"
"""The id of the volume of a pod without a uid (kubernetes/pkg/volume/csi/csi_plugin.go, makeVolumeHandle)."""
ELSEWHERE = remedy("SomethingNew")


@pytest.mark.parametrize("reason", sorted(set(Reason) - GOOD))
def test_every_reason_of_a_failure_has_a_remedy(reason: str) -> None:
    assert remedy(reason) != ELSEWHERE


def test_the_page_describes_every_link_in_order_and_no_other() -> None:
    assert re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE) == list(LINKS)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"cacheName": "a"}, CacheName("team", "a")),
        ({"cacheName": "a", "cacheNamespace": "team"}, CacheName("team", "a")),
        ({"cacheName": "a", "cacheNamespace": "other"}, None),
        ({"clusterCacheName": "a"}, CacheName(None, "a")),
        ({"csi.gkm.io/GKMCache": "a", "csi.gkm.io/namespace": "team"}, CacheName("team", "a")),
        ({"csi.gkm.io/GKMCache": "a"}, CacheName(None, "a")),
        ({"csi.gkm.io/GKMCache": "a", "csi.gkm.io/namespace": "other"}, None),
        ({"cacheName": "a", "clusterCacheName": "a"}, None),
        ({}, None),
    ],
)
def test_a_volume_names_the_cache_that_the_driver_would_mount(
    attributes: dict[str, str], expected: CacheName | None
) -> None:
    assert cache_name(attributes, "team") == expected


def healthy(
    attributes: dict[str, str],
    *,
    message: str = "",
    ended: str = "server",
    has_driver: ReadResult[object] = ReadResult({}),  # noqa: B008 -- frozen
    runtime: str = "",
) -> Facts:
    """Return a pod whose server has the volume and whose sidecar has not; one of them may have ended."""
    digest, spec = f"sha256:{'a' * 64}", {"cacheName": "a", "mountPath": "/cache"} | attributes
    env = (VariableFacts("TRITON_CACHE_DIR", "/cache"),)
    server = ContainerFacts("server", (VolumeMountFacts("kernels", "/cache"),), env)
    containers = (server, ContainerFacts("sidecar"))
    end = ContainerState(terminated=Terminated(1, "Error", message)) if message else ContainerState({})
    status = PodStatusFacts("Running", container_statuses=(ContainerStatus(ended, last_state=end),))
    verified = Condition("Verified", "True", "CosignSuccess", "", NOW)
    cache = GKMCache(
        metadata=ObjectMeta(name="a", namespace="team"),
        spec=CacheSpec(image="r.example/a:1"),
        status=CacheStatus(image="r.example/a:1", resolved_digest=digest, conditions=[verified], runtime=runtime),
    )
    use = PodUse(namespace="team", name="p", volume_id=HANDLE, digest=digest)
    report = NodeCacheStatus(state="Ready", digest=digest, pods=[use])
    return Facts(
        pod=PodFacts(ObjectMeta(name="p", namespace="team"), PodSpecFacts("n", containers=containers), status),
        volume=VolumeFacts("kernels", CSIVolume("csi.gkm.io", {name: value for name, value in spec.items() if value})),
        has_driver=has_driver,
        csi_node=ReadResult(decode(b'{"spec": {"drivers": [{"name": "csi.gkm.io"}]}}', type=RegisteredDrivers)),
        cache_name=CacheName("team", "a"),
        cache=ReadResult(cache),
        node=ReadResult(GKMCacheNode(ObjectMeta(name="n"), NodeSpec("n"), NodeStatus(caches={"a": report}))),
    )


def test_without_a_driver_the_next_step_holds_for_an_installation_that_needs_none() -> None:
    (driver,) = (step for step in walk(healthy({}, has_driver=ReadResult())) if step.link == "driver")
    assert "with delivery: image, name the cache by a label" in driver.hint, "GKM may be installed"


def test_the_verdict_on_an_earlier_image_is_no_reason_for_the_present_one() -> None:
    facts = healthy({})
    assert facts.cache.value is not None
    refused = Condition("Verified", "False", Reason.SIGNATURE_MISSING, "", NOW)
    status = structs.replace(facts.cache.value.status, conditions=[refused])
    changed = structs.replace(facts.cache.value, spec=CacheSpec(image="r.example/b:1"), status=status)
    (digest,) = (step for step in walk(replace(facts, cache=ReadResult(changed))) if step.link == "digest")
    assert digest.detail == "the controllers have not resolved the image yet", "the reason is of r.example/a:1"


@pytest.mark.parametrize(
    ("variable", "value", "broken"),
    [
        ("VLLM_CACHE_ROOT", "/cache/vllm", ""),
        ("VLLM_CACHE_ROOT", "/cache", "its cache is at /cache/vllm"),
        ("TRITON_CACHE_DIR", "/cache/vllm/", "its cache is at /cache/triton"),
        ("TRITON_CACHE_DIR", "/elsewhere", "not in /cache"),
        ("TORCHINDUCTOR_CACHE_DIR", "/cache/inductor", "sets TORCHINDUCTOR_CACHE_DIR only"),
    ],
)
def test_a_variable_must_name_the_directory_of_its_runtime_among_several(
    variable: str, value: str, broken: str
) -> None:
    facts = healthy({})
    assert facts.cache.value is not None
    status = structs.replace(facts.cache.value.status, runtime="vllm-triton")
    server = ContainerFacts("server", (VolumeMountFacts("kernels", "/cache"),), (VariableFacts(variable, value),))
    several = replace(
        facts,
        cache=ReadResult(structs.replace(facts.cache.value, status=status)),
        pod=structs.replace(facts.pod, spec=PodSpecFacts("n", containers=(server,))),
    )
    (step,) = (step for step in walk(several) if step.link == "mount-path")
    assert (step.state is State.BROKEN, broken in step.detail) == (bool(broken), True)


READ_ONLY = "OSError: [Errno 30] Read-only file system: "


@pytest.mark.parametrize(
    ("attributes", "message", "ended", "broken"),
    [
        ({}, f"{READ_ONLY}'/cache/X'", "server", "hits"),
        ({}, f"{READ_ONLY}'/etc/x'", "server", ""),
        ({}, f"{READ_ONLY}'/cache2/x'", "server", ""),
        ({}, f"{READ_ONLY}'/cache/X'", "sidecar", ""),
        ({}, "OSError: '/cache/X' is another error", "server", ""),
        ({"readOnly": "false"}, f"{READ_ONLY}'/cache/X'", "server", ""),
        ({"mountPath": ""}, "", "server", ""),
        ({"mountPath": ""}, f"{READ_ONLY}'/cache/X'", "server", "mount-path"),
        ({"mountPath": "", "readOnly": "false"}, f"{READ_ONLY}'/etc/X'", "server", ""),
    ],
)
def test_the_cache_is_blamed_for_what_failed_in_its_volume_only(
    attributes: dict[str, str], message: str, ended: str, broken: str
) -> None:
    steps = walk(healthy(attributes, message=message, ended=ended))
    assert [step.link for step in steps if step.state is State.BROKEN] == ([broken] if broken else [])


@pytest.mark.parametrize(("variable", "broken"), [("VLLM_CACHE_ROOT", True), ("FLASHINFER_WORKSPACE_BASE", False)])
def test_a_variable_of_another_runtime_may_name_another_path(variable: str, broken: bool) -> None:  # noqa: FBT001
    facts = healthy({}, runtime="vllm")
    server = ContainerFacts("server", (VolumeMountFacts("kernels", "/cache"),), (VariableFacts(variable, "/other"),))
    pod = PodFacts(facts.pod.metadata, PodSpecFacts("n", containers=(server,)), facts.pod.status)
    steps = {step.link: step for step in walk(replace(facts, pod=pod))}
    assert (steps["mount-path"].state is State.BROKEN) == broken
    assert ("/other" in steps["mount-path"].detail) == broken


def test_without_a_mount_path_the_detail_has_the_doubt() -> None:
    steps = {step.link: step for step in walk(healthy({"mountPath": ""}))}
    assert "only if the cache was built at /cache" in steps["mount-path"].detail


def test_a_mounted_volume_proves_the_driver_that_could_not_be_read() -> None:
    unread: ReadResult[object] = ReadResult(unreadable=Unreadable("missing right: get csidrivers", "ask for it"))
    steps = {step.link: step for step in walk(healthy({}, has_driver=unread))}
    assert {step.state for step in steps.values()} == {State.OK}
    assert "is mounted" in steps["driver"].detail
    waiting = replace(healthy({}, has_driver=unread), node=ReadResult(unreadable=Unreadable("missing right", "ask")))
    states = {step.link: step.state for step in walk(waiting)}
    assert (states["driver"], states["mount"]) == (State.NOT_CHECKED, State.NOT_CHECKED)


def test_the_volume_of_an_earlier_pod_of_the_same_name_is_not_the_pods() -> None:
    facts = healthy({})
    metadata = structs.replace(facts.pod.metadata, uid="of-the-next-pod")
    pod = structs.replace(facts.pod, metadata=metadata, status=PodStatusFacts("Pending"))
    steps = {step.link: step for step in walk(replace(facts, pod=pod))}
    assert steps["mount"].state is State.BROKEN, (
        "the pod waits, and the report is about a pod of a StatefulSet before it"
    )


def test_behind_a_link_that_could_not_be_read_the_walk_goes_on() -> None:
    mounts = (ContainerFacts("server", (VolumeMountFacts("kernels", "/cache"),)),)
    facts = Facts(
        pod=PodFacts(ObjectMeta(name="p", namespace="team"), PodSpecFacts(node_name="n", containers=mounts)),
        volume=VolumeFacts("kernels", CSIVolume("csi.gkm.io", {"cacheName": "a"})),
        cache_name=CacheName("team", "a"),
        has_driver=ReadResult(unreadable=Unreadable("missing right: get csidrivers", "ask for it")),
    )
    steps = {step.link: step for step in walk(facts)}
    assert (steps["driver"].state, steps["driver"].hint) == (State.NOT_CHECKED, "ask for it")
    assert steps["object"].state is State.BROKEN
    assert steps["digest"].state is State.SKIPPED


class ApiWithKubelet(FakeApi):
    """An API server that passes kubelet's answer on."""

    def __init__(self, answer: bytes | ApiError) -> None:
        super().__init__()
        self._answer = answer

    def discover(self, path: str, document: type[T]) -> T:
        self.calls.append(("discover", path, ""))
        if isinstance(self._answer, ApiError):
            raise self._answer
        return decoding.document(path, self._answer, document)


def hits_of(answer: bytes | ApiError, *, read_only: str = "false", phase: str = "Running") -> tuple[str, list[str]]:
    """Return the detail of the link for a pod with one volume, and the paths that were read."""
    api = ApiWithKubelet(answer)
    csi = {"driver": "csi.gkm.io", "volumeAttributes": {"cacheName": "a", "readOnly": read_only}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", "uid": "u-1"},
        "spec": {"nodeName": "node-a", "volumes": [{"name": "kernels", "csi": csi}], "containers": []},
    }
    api.create(PODS, pod)
    api.merge(PODS, "p", {"status": {"phase": phase}}, "team", subresource="status")
    (facts,) = Observation(api).facts(api.get(PODS, "p", "team"))
    return programs.decide_hits(facts).detail, [path for verb, path, _ in api.calls if verb == "discover"]


def summary(used: int, uid: str = "u-1") -> bytes:
    volumes = [{"name": "other", "usedBytes": 7}, {"name": "kernels", "usedBytes": used, "inodesUsed": 5}]
    pod = {"podRef": {"name": "p", "namespace": "team", "uid": uid}, "volume": volumes}
    without = {"podRef": {"name": "q", "namespace": "team", "uid": "u-0"}}
    return json.dumps({"node": {"nodeName": "node-a"}, "pods": [without, pod]}).encode()


def test_what_a_program_wrote_into_its_layer_is_a_miss() -> None:
    path = ["/api/v1/nodes/node-a/proxy/stats/summary"]
    assert hits_of(summary(0)) == (
        "no failure; the program has compiled no kernel into the volume: each kernel hit, or it has not looked there",
        path,
    )
    detail, paths = hits_of(summary(12288))
    assert "written 12288 bytes that the cache lacks" in detail
    assert paths == path


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (summary(5, uid="of-another-pod-of-that-name"), "size is not known"),
        (ApiError(403, "Forbidden", "nodes is forbidden"), "nodes is forbidden"),
        (ApiError(503, "ServiceUnavailable", "no kubelet"), "no kubelet"),
        (b'{"pods": 1}', "size is not known"),
        (b"<html>", "size is not known"),
    ],
)
def test_a_layer_that_cannot_be_read_is_no_broken_link(answer: bytes | ApiError, words: str) -> None:
    detail, _ = hits_of(answer)
    assert words in detail


@pytest.mark.parametrize(("read_only", "phase"), [("true", "Running"), ("false", "Pending"), ("false", "Succeeded")])
def test_kubelet_is_read_for_running_pods_with_a_layer_only(read_only: str, phase: str) -> None:
    assert hits_of(summary(0), read_only=read_only, phase=phase)[1] == []


@pytest.mark.parametrize(
    ("labels", "annotations", "detail"),
    [
        ({}, {}, "the pod has no volume of csi.gkm.io"),
        ({"gkm.io/cache": ""}, {}, "the pod has no volume of csi.gkm.io"),
        ({"gkm.io/cache": "a"}, {}, "the webhook was not called"),
        ({"gkm.io/cluster-cache": "a"}, {}, "the webhook was not called"),
        ({}, {"gkm.io/injected": '{"skipped":[{"what":"w","why":"y"},{}]}'}, "gave the pod no volume: w: y; : "),
        ({}, {"gkm.io/injected": "{}"}, "its report has no reason"),
        ({}, {"gkm.io/injected": "[" * 30_000}, "cannot be read"),
        ({}, {"gkm.io/injected": " " * 40_000}, "longer than any"),
        ({}, {"gkm.io/injected": '{"skipped":1}'}, "cannot be read"),
        ({}, {"gkm.io/injected": "\ud800"}, "cannot be read"),
    ],
)
def test_a_pod_without_a_volume_is_told_from_one_whose_label_had_no_effect(
    labels: dict[str, str], annotations: dict[str, str], detail: str
) -> None:
    step = no_volume(PodFacts(ObjectMeta(name="p", namespace="team", labels=labels, annotations=annotations)))
    assert (step.link, step.state) == ("volume", State.BROKEN)
    assert detail in step.detail
    assert step.hint
