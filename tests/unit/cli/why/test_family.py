"""`gkm why` follows the name in a volume to the member of the family that the pod has, or would get."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, CLUSTERGKMCACHES, GKMCACHENODES, GKMCACHES, Resource
from gkm_cli.clusters.reads import Unreadable
from gkm_cli.inputs.pods import CSIVolume, VolumeFacts
from gkm_cli.why import links
from gkm_cli.why.facts import CacheName, ContainerState, ContainerStatus, Facts, PodStatusFacts
from gkm_cli.why.observation import PODS, Observation
from gkm_cli.why.outcomes import Broken
from msgspec import structs
from support.kube.fake_api import FakeApi

VERSION = "gkm.io/v1alpha1"
Members = dict[str, dict[str, Any]]


def facts_of(
    members: Members,
    report: dict[str, dict[str, Any]],
    *,
    shared: bool = False,
    lists: int = 1,
    fault: Callable[[str, str], ApiError | None] = lambda _verb, _plural: None,
) -> Facts:
    """Return the facts about a pod that names the family `llama`, on a node with this report."""
    api = FakeApi()
    namespace = {} if shared else {"namespace": "team"}
    attribute = "clusterCacheName" if shared else "cacheName"
    csi = {"driver": "csi.gkm.io", "volumeAttributes": {attribute: "llama"}}
    containers = [{"name": "server", "volumeMounts": [{"name": "kernels", "mountPath": "/cache"}]}]
    spec = {"nodeName": "node-a", "volumes": [{"name": "kernels", "csi": csi}], "containers": containers}
    metadata = {"name": "p", "namespace": "team", "uid": "u-1"}
    api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    prefix = "Cluster" if shared else ""
    caches: Resource[Any] = CLUSTERGKMCACHES if shared else GKMCACHES
    nodes: Resource[Any] = CLUSTERGKMCACHENODES if shared else GKMCACHENODES
    for name, fields in members.items():
        value = {"apiVersion": VERSION, "kind": f"{prefix}GKMCache", "metadata": {"name": name} | namespace}
        api.create(caches, value | {"spec": {"image": "r.example/a:1"} | fields})
    node = {"apiVersion": VERSION, "kind": f"{prefix}GKMCacheNode", "metadata": {"name": "node-a"} | namespace}
    api.create(nodes, node | {"spec": {"nodeName": "node-a"}})
    api.merge(nodes, "node-a", {"status": {"caches": report}}, None if shared else "team", subresource="status")
    api.fault = fault
    (facts,) = Observation(api).facts(api.get(PODS, "p", "team"))
    assert len([call for call in api.calls if call[0] == "list" and "caches" in str(call[1])]) == lists
    return facts


def ready(*pods: str, chosen: bool = False) -> dict[str, Any]:
    uses = [{"namespace": "team", "name": pod, "volumeId": f"v-{pod}", "digest": "sha256:" + "a" * 64} for pod in pods]
    return {"state": "Ready", "pods": uses, "chosen": chosen}


FIRST, SECOND = {"family": "llama", "generation": 1}, {"family": "llama", "generation": 2}
OTHER = {"family": "qwen", "generation": 9}


@pytest.mark.parametrize(
    ("members", "report", "name"),
    [
        ({"a": FIRST, "b": SECOND}, {"a": ready("p"), "b": ready("q", chosen=True)}, "a"),
        ({"a": FIRST, "b": SECOND}, {"a": ready(), "b": ready("q", chosen=True)}, "b"),
        ({"llama": {}, "a": FIRST}, {"llama": ready(), "a": ready(chosen=True)}, "a"),
        ({"llama": {}, "a": FIRST}, {"llama": ready("p"), "a": ready(chosen=True)}, "llama"),
        ({"llama": {}, "c": OTHER}, {"llama": ready(), "c": ready("p", chosen=True)}, "llama"),
        ({"a": FIRST, "b": SECOND, "c": OTHER}, {"c": ready(chosen=True)}, "b"),
    ],
)
def test_the_links_are_those_of_the_member(members: Members, report: dict[str, dict[str, Any]], name: str) -> None:
    for shared in (False, True):
        facts = facts_of(members, report, shared=shared)
        scope = None if shared else "team"
        assert facts.cache_name == CacheName(scope, name)
        assert facts.existing_cache.metadata.name == name
        assert facts.on_node is not None or name not in report
        detail = links.decide_volume(facts).detail
        assert (", a member of the family llama, mounted by server" in detail) is (name != "llama"), detail


def test_a_cache_of_no_family_is_read_alone() -> None:
    assert facts_of({"llama": {}, "c": OTHER}, {"llama": ready()}, lists=0).cache_name == CacheName("team", "llama")


def test_a_family_without_a_member_is_a_cache_that_does_not_exist() -> None:
    facts = facts_of({"c": OTHER}, {})
    assert facts.cache_name == CacheName("team", "llama")
    assert "there is no GKMCache team/llama" in links.decide_cache_object(facts).detail


def test_a_family_that_may_not_be_listed_is_not_a_cache_that_does_not_exist() -> None:
    def refused(verb: str, plural: str) -> ApiError | None:
        return ApiError(403, "Forbidden", "no") if (verb, plural) == ("list", "gkmcaches") else None

    facts = facts_of({"a": FIRST}, {}, fault=refused)
    assert facts.cache.unreadable is not None
    with pytest.raises(Unreadable, match="missing right: list gkmcaches"):
        links.decide_cache_object(facts)


@pytest.mark.parametrize("value", ["empty", "compile"])
def test_a_pod_that_may_start_without_a_cache_and_mounts_none_has_an_empty_volume(value: str) -> None:
    facts = facts_of({"llama": {}}, {"llama": ready()}, lists=0)
    running = PodStatusFacts("Running", container_statuses=(ContainerStatus("server", ContainerState(running={})),))
    attributes = {"cacheName": "llama", "ifUnavailable": value}
    facts = replace(
        facts,
        pod=structs.replace(facts.pod, status=running),
        volume=VolumeFacts("kernels", CSIVolume("csi.gkm.io", attributes)),
    )
    outcome = links.decide_mount(facts)
    assert isinstance(outcome, Broken)
    assert outcome.detail == "the pod started with an empty volume, because the cache was not ready then"
