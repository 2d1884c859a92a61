"""The conditions of what an agent writes: true, about a generation, and still while nothing changes."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from gkm.api.fabrics import NodeFabricStatus, NVLink
from gkm.api.meta import ObjectMeta
from gkm.api.nodes import NodeCacheStatus, NodeStatus
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES, NODES, Resource
from gkm_agent.fabric.objects import healthy
from gkm_agent.kubernetes.sinks import NODEFABRICS, KubernetesFabricSink, KubernetesStatusSink
from gkm_agent.kubernetes.source import NodeView
from gkm_agent.report.objects import MAX_BYTES, ready
from gkm_agent.standalone.sinks import FileFabricSink, FileStatusSink
from msgspec import convert
from support.agent.fabric_values import DOMAIN, report
from support.kube.fake_api import FakeApi

THEN = "2026-01-01T00:00:00Z"


def caches(*states: str, message: str = "") -> NodeStatus:
    named = {f"cache-{number:04}": NodeCacheStatus(state=state, message=message) for number, state in enumerate(states)}
    return NodeStatus(caches=named)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["Ready", "Ready"], ("True", "AllCachesReady", "2 Ready")),
        (["Ready", "Deleting"], ("True", "AllCachesReady", "1 Ready, 1 Deleting")),
        (["Ready", "Pending"], ("False", "CachesPending", "1 Ready, 1 Pending; cache-0001")),
        (["Ready", "Downloading"], ("False", "CachesPending", "1 Ready, 1 Downloading; cache-0001")),
        (["Extracting", "Incompatible"], ("False", "CachesPending", "1 Extracting, 1 Incompatible; cache-0000")),
        (["Ready", "Incompatible"], ("True", "AllCachesReady", "1 Ready, 1 Incompatible; cache-0001")),
        (["Incompatible"], ("True", "AllCachesReady", "1 Incompatible; cache-0000")),
        (
            ["Failed", "Incompatible", "Pending"],
            ("False", "CachesFailed", "1 Pending, 1 Incompatible, 1 Failed; cache-0000"),
        ),
        ([], ("True", "AllCachesReady", "no caches")),
    ],
)
def test_caches_become_the_condition_ready(states: list[str], expected: tuple[str, str, str]) -> None:
    assert ready(caches(*states)) == expected


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ArchitectureMismatch", ("True", "AllCachesReady")),
        ("NoGPU", ("True", "AllCachesReady")),
        ("GPULost", ("False", "CachesFailed")),
        ("MetadataInvalid", ("False", "CachesFailed")),
    ],
)
def test_a_cache_for_other_gpus_is_no_fault_and_a_lost_gpu_is_one(reason: str, expected: tuple[str, str]) -> None:
    status = NodeStatus(caches={"x": NodeCacheStatus(state="Incompatible", reason=reason)})
    assert ready(status) == (*expected, f"1 Incompatible; x ({reason})")


def test_the_condition_names_the_reason_of_a_cache_and_at_most_five_caches() -> None:
    failed = NodeCacheStatus(state="Failed", reason="DiskFull")
    many = NodeStatus(caches={f"c{number}": failed for number in range(7)})
    named = "c0 (DiskFull), c1 (DiskFull), c2 (DiskFull), c3 (DiskFull), c4 (DiskFull) and 2 more"
    assert ready(many) == ("False", "CachesFailed", f"7 Failed; {named}")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            NodeFabricStatus(domain=DOMAIN, health="healthy"),
            ("True", "FabricHealthy", f"the node is in the NVLink domain {DOMAIN}"),
        ),
        (NodeFabricStatus(health="degraded", message="a link"), ("False", "FabricDegraded", "a link")),
        (
            NodeFabricStatus(health="degraded", message="GPU 0", nvlink=NVLink(state="InProgress")),
            ("Unknown", "FabricRegistering", "GPU 0"),
        ),
        (
            NodeFabricStatus(health="degraded", message="a link", nvlink=NVLink(state="Completed")),
            ("False", "FabricDegraded", "a link"),
        ),
        (
            NodeFabricStatus(health="unhealthy", message="a GPU", nvlink=NVLink(state="InProgress")),
            ("False", "FabricUnhealthy", "a GPU"),
        ),
        (
            NodeFabricStatus(health="unhealthy", message="no driver", last_domain=DOMAIN),
            ("False", "FabricUnhealthy", "no driver"),
        ),
        (NodeFabricStatus(health="unhealthy", message="no driver"), ("Unknown", "NoFabric", "no driver")),
        (NodeFabricStatus(health="none", message="no driver"), ("Unknown", "NoFabric", "no driver")),
        (
            NodeFabricStatus(health="none"),
            ("Unknown", "NoFabric", "the GPUs of the node are attached to no NVLink fabric"),
        ),
    ],
)
def test_a_fabric_becomes_the_condition_healthy(status: NodeFabricStatus, expected: tuple[str, str, str]) -> None:
    assert healthy(status) == expected


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "uid": "uid-n"}})
    return api


def owner(api: FakeApi) -> NodeView:
    return NodeView(convert(api.get(NODES, "node-1")["metadata"], ObjectMeta, strict=False))


def sink(api: FakeApi) -> KubernetesStatusSink:
    made = KubernetesStatusSink(api, "node-1", lambda: owner(api))
    made.scopes()
    return made


def fabric(api: FakeApi) -> KubernetesFabricSink:
    return KubernetesFabricSink(api, "node-1", lambda: owner(api))


def shown(api: FakeApi, resource: Resource[Any], namespace: str | None = None) -> tuple[str, str, str, int, int]:
    """Status, reason, time and generation of the one condition, and the generation that the status is about."""
    status = api.get(resource, "node-1", namespace).status
    (condition,) = status.conditions
    about = condition.observed_generation, status.observed_generation
    return condition.status, condition.reason, condition.last_transition_time, *about


def long_ago(api: FakeApi, resource: Resource[Any], namespace: str | None = None) -> None:
    """Let the condition have turned long ago."""
    condition = api.get(resource, "node-1", namespace).status.conditions[0]
    old = msgspec.to_builtins(condition) | {"lastTransitionTime": THEN}
    meta = {"name": "node-1"} | ({"namespace": namespace} if namespace else {})
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    api.apply(resource, whole | {"status": {"conditions": [old]}}, field_manager="test", subresource="status")


@pytest.mark.parametrize("scope", ["ml-apps", None])
def test_a_node_object_has_a_condition_about_its_generation(api: FakeApi, scope: str | None) -> None:
    resource = GKMCACHENODES if scope else CLUSTERGKMCACHENODES
    sink(api).publish(scope, caches("Ready", "Pending"))
    assert shown(api, resource, scope)[:2] == ("False", "CachesPending")
    assert shown(api, resource, scope)[3:] == (1, 1)
    long_ago(api, resource, scope)
    again = sink(api)
    again.publish(scope, caches("Ready", "Downloading"))
    assert shown(api, resource, scope) == ("False", "CachesPending", THEN, 1, 1)
    again.publish(scope, caches("Ready", "Ready"))
    assert shown(api, resource, scope)[:2] == ("True", "AllCachesReady")
    assert shown(api, resource, scope)[2] != THEN


def test_the_same_after_a_restart_leaves_the_object_as_it_is(api: FakeApi) -> None:
    sink(api).publish("ml-apps", caches("Ready", "Failed"))
    long_ago(api, GKMCACHENODES, "ml-apps")
    before = api.get(GKMCACHENODES, "node-1", "ml-apps")
    after_restart = sink(api)
    for _ in range(2):
        after_restart.publish("ml-apps", caches("Ready", "Failed"))
    assert api.get(GKMCACHENODES, "node-1", "ml-apps") == before


def test_an_object_of_an_agent_without_conditions_gets_them(api: FakeApi) -> None:
    meta = {"name": "node-1", "namespace": "ml-apps"}
    whole = {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCacheNode", "metadata": meta}
    said = {"caches": {"cache-0000": {"state": "Ready"}}}
    api.create(GKMCACHENODES, whole | {"spec": {"nodeName": "node-1"}})
    api.apply(GKMCACHENODES, whole | {"status": said}, field_manager="gkm-agent", subresource="status")
    sink(api).publish("ml-apps", caches("Ready"))
    assert shown(api, GKMCACHENODES, "ml-apps")[:2] == ("True", "AllCachesReady")
    fabric_meta = {"apiVersion": "gkm.io/v1alpha1", "kind": "NodeFabric", "metadata": {"name": "node-1"}}
    api.create(NODEFABRICS, fabric_meta | {"spec": {"nodeName": "node-1"}})
    told = {"domain": DOMAIN, "health": "healthy"}
    api.apply(NODEFABRICS, fabric_meta | {"status": told}, field_manager="gkm-agent", subresource="status")
    fabric(api).publish(report())
    assert shown(api, NODEFABRICS)[:2] == ("True", "FabricHealthy")


def test_a_shortened_node_object_still_counts_all_caches(api: FakeApi) -> None:
    many = caches(*["Ready"] * 4000, "Failed", message="m" * 1024)
    sink(api).publish("ml-apps", many)
    found = api.get(GKMCACHENODES, "node-1", "ml-apps").status
    assert len(found.caches) < 4001 or not found.caches["cache-0000"].message
    assert shown(api, GKMCACHENODES, "ml-apps")[:2] == ("False", "CachesFailed")
    assert found.conditions[0].message == "4000 Ready, 1 Failed; cache-4000"
    assert len(msgspec.json.encode(found)) <= MAX_BYTES + 64


def test_a_node_fabric_has_a_condition_about_its_generation(api: FakeApi) -> None:
    fabric(api).publish(report())
    assert shown(api, NODEFABRICS)[:2] == ("True", "FabricHealthy")
    assert shown(api, NODEFABRICS)[3:] == (1, 1)
    long_ago(api, NODEFABRICS)
    again = fabric(api)
    again.publish(report())
    again.invalidate()
    again.publish(report())
    assert shown(api, NODEFABRICS) == ("True", "FabricHealthy", THEN, 1, 1)
    again.publish(report("", "unhealthy"))
    assert shown(api, NODEFABRICS)[:2] == ("False", "FabricUnhealthy")
    assert shown(api, NODEFABRICS)[2] != THEN


def test_files_have_the_conditions_too_and_are_not_written_again(tmp_path: Path) -> None:
    nodes, fabrics = FileStatusSink(tmp_path, "node-1"), FileFabricSink(tmp_path, "node-1")
    paths = (tmp_path / "ml-apps" / "node-1.yaml", tmp_path / "node-1.fabric.yaml")
    nodes.publish("ml-apps", caches("Ready"))
    fabrics.publish(report())
    for path in paths:
        value = yaml.load(path.read_text(), yaml.CSafeLoader)
        value["status"]["conditions"][0]["lastTransitionTime"] = THEN
        path.write_text(yaml.safe_dump(value, sort_keys=False))
    before = [path.stat() for path in paths]
    nodes.publish("ml-apps", caches("Ready"))
    fabrics.publish(report())
    assert [path.stat() for path in paths] == before
    assert [of(path)["reason"] for path in paths] == ["AllCachesReady", "FabricHealthy"]
    nodes.publish("ml-apps", caches("Failed"))
    fabrics.publish(report("", "unhealthy"))
    assert [of(path)["reason"] for path in paths] == ["CachesFailed", "FabricUnhealthy"]
    assert all(of(path)["lastTransitionTime"] != THEN for path in paths)


def of(path: Path) -> dict[str, str]:
    """The one condition in a file."""
    (condition,) = yaml.load(path.read_text(), yaml.CSafeLoader)["status"]["conditions"]
    return {key: str(value) for key, value in condition.items()}
