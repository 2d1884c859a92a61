"""Wishes from the Kubernetes API and status into it, over an API in memory that the contract tests hold to the real."""

from threading import Event
from typing import Any

import pytest
from gkm.api.nodes import NodeStatus
from gkm.api.rollouts import LAST_RANK
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, NODES, Resource
from gkm_agent.caches.model import PullHold, WantedCache
from gkm_agent.interfaces import NotWritten
from gkm_agent.kubernetes.sinks import KubernetesStatusSink
from gkm_agent.kubernetes.source import KubernetesSource
from support.agent.fakes import digest_of
from support.agent.node import Node
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi

REF, UID = CacheRef("ml-apps", "llama"), "uid-of-llama"
WHOLE, CLUSTER_WHOLE = (
    Resource(found.api_version, found.kind, found.plural, found.namespaced, dict[str, Any])
    for found in (GKMCACHES, CLUSTERGKMCACHES)
)
IMAGE, ONE = "registry.example/team/cache:1", digest_of("one")


def cache(name: str = "llama", namespace: str = "ml-apps", **spec: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCache" if namespace else "ClusterGKMCache",
        "metadata": {"name": name, "uid": f"uid-of-{name}"} | ({"namespace": namespace} if namespace else {}),
        "spec": {"image": IMAGE} | spec,
    }


def verified(value: dict[str, Any], state: str = "True", image: str = IMAGE) -> dict[str, Any]:
    condition = {
        "type": "Verified",
        "status": state,
        "reason": "CosignSuccess" if state == "True" else "SignatureMissing",
        "message": "no signature was found",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return value | {"status": {"image": image, "resolvedDigest": ONE, "conditions": [condition]}}


UNRESOLVED = cache() | {
    "status": {
        "conditions": [
            {
                "type": "Verified",
                "status": "False",
                "reason": "NotFound",
                "message": "no such tag",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "observedGeneration": 1,
            }
        ]
    }
}
"""As the controller says it of an image that leads to no digest."""


def put(api: FakeApi, value: dict[str, Any]) -> None:
    """Make the object, and say its status as a controller does."""
    metadata = value["metadata"]
    resource: Resource[Any] = GKMCACHES if value["kind"] == "GKMCache" else CLUSTERGKMCACHES
    api.create(resource, value)
    if "status" in value:
        said = {**value, "metadata": {key: metadata[key] for key in ("name", "namespace") if key in metadata}}
        api.apply(resource, said, field_manager="controller", subresource="status")


def test_a_verified_cache_is_wanted_by_its_digest(api: FakeApi, source: KubernetesSource, changed: Event) -> None:
    put(api, verified(cache()))
    put(api, verified(cache("everywhere", "")))

    expected = [
        WantedCache(CacheRef(None, "everywhere"), IMAGE, ONE, selected=False, uid="uid-of-everywhere"),
        WantedCache(REF, IMAGE, ONE, selected=False, uid=UID),
    ]

    until(lambda: source.caches() == expected, "both are seen as they are")

    assert changed.is_set()


@pytest.mark.parametrize(("status", "held_back"), [("True", True), ("False", False)])
def test_a_generation_that_the_controllers_hold_back_is_known_as_such(
    api: FakeApi, source: KubernetesSource, *, status: str, held_back: bool
) -> None:
    value = verified(cache(family="llama", generation=2))
    value["status"]["conditions"].append({**value["status"]["conditions"][0], "type": "HeldBack", "status": status})
    put(api, value)
    until(lambda: bool(source.caches()), "it is seen")
    (wanted,) = source.caches()
    assert (wanted.membership.family, wanted.membership.generation) == ("llama", 2)
    assert wanted.membership.held_back is held_back


@pytest.mark.parametrize(
    ("value", "hold"),
    [
        (cache(), PullHold("", "waiting for the controller to resolve and verify the image")),
        (
            verified(cache(), image="registry.example/team/cache:0"),
            PullHold("", "waiting for the controller to resolve and verify the image"),
        ),
        (verified(cache(), "False"), PullHold("SignatureMissing", "no signature was found", final=True, digest=ONE)),
        (UNRESOLVED, PullHold("NotFound", "waiting for the controller to verify the image: no such tag")),
        (
            verified(cache(), "Unknown"),
            PullHold("SignatureMissing", "waiting for the controller to verify the image: no signature was found"),
        ),
    ],
)
def test_until_it_is_verified_a_cache_is_held(
    api: FakeApi, source: KubernetesSource, value: dict[str, Any], hold: PullHold
) -> None:
    put(api, value)

    until(
        lambda: source.caches() == [WantedCache(REF, IMAGE, None, hold, selected=False, uid=UID)], "it is seen as it is"
    )


@pytest.mark.parametrize(
    ("rollout", "is_open"),
    [
        (None, False),
        ({"digest": digest_of("two"), "openRank": LAST_RANK}, False),
        ({"digest": ONE, "openRank": "0" * 16}, False),
        ({"digest": ONE, "openRank": LAST_RANK}, True),
    ],
)
def test_a_cache_with_a_rollout_is_held_until_the_rank_of_the_node_is_open(
    api: FakeApi,
    source: KubernetesSource,
    rollout: dict[str, str] | None,
    is_open: bool,  # noqa: FBT001 -- a column
) -> None:
    value = verified(cache(rollout={"maxConcurrentNodes": 3}))
    value["status"] |= {"rollout": rollout} if rollout else {}
    put(api, value)
    hold = PullHold("", "waiting: the rollout has not reached this node (spec.rollout: 3 nodes at a time)")
    expected = WantedCache(REF, IMAGE, ONE if is_open else None, None if is_open else hold, selected=False, uid=UID)
    until(lambda: source.caches() == [expected], "it is seen as it is")


def test_a_cache_that_is_too_large_is_held_with_its_field(api: FakeApi, source: KubernetesSource) -> None:
    put(api, verified(cache(nodeSelector={"pool": "x" * 100_000})))
    until(source.caches, "it is seen")
    (wanted,) = source.caches()
    assert (wanted.ref, wanted.digest, wanted.selected) == (REF, None, False)
    assert wanted.hold is not None
    assert (wanted.hold.reason, wanted.hold.final) == ("TooLarge", False)
    assert "spec.nodeSelector: it takes " in wanted.hold.message
    assert source.synced


def test_annotations_and_labels_of_a_cache_are_of_no_account(api: FakeApi, source: KubernetesSource) -> None:
    value = verified(cache())
    value["metadata"]["annotations"] = {f"key-{number}": "x" * 1000 for number in range(200)}
    put(api, value)
    expected = [WantedCache(REF, IMAGE, ONE, selected=False, uid=UID)]
    until(lambda: source.caches() == expected, "it is seen as it is")


def test_caches_meant_for_other_nodes_and_deleted_ones_are_not_wanted(api: FakeApi, source: KubernetesSource) -> None:
    leaving = cache("leaving")
    leaving["metadata"]["finalizers"] = ["test/hold"]
    api.create(GKMCACHES, leaving)
    api.delete(GKMCACHES, "leaving", leaving["metadata"]["namespace"])
    api.create(GKMCACHES, cache("elsewhere", nodeSelector={"pool": "cpu"}))
    api.create(GKMCACHES, cache("here", nodeSelector={"pool": "gpu"}))

    (wanted,) = until(source.caches, "one is seen")

    assert wanted.ref.name == "here"


def test_what_changes_nothing_for_this_node_does_not_wake_its_agent(
    api: FakeApi, source: KubernetesSource, changed: Event
) -> None:
    put(api, verified(cache()))
    put(api, cache("elsewhere", nodeSelector={"pool": "cpu"}))
    until(lambda: len(source._caches.values()) == 2, "both are seen")
    until(source.caches, "one is wanted")
    changed.clear()
    # Every pod that mounts a cache changes its totals, wherever it runs.
    api.merge(WHOLE, "llama", {"status": {"podsUsing": 7, "readyNodes": 9}}, "ml-apps", subresource="status")
    for image in ("registry.example/team/cache:2", "registry.example/team/cache:3"):
        api.merge(WHOLE, "elsewhere", {"spec": {"image": image}}, "ml-apps")

    def last_is_seen() -> bool:
        found = source._caches.get("elsewhere", "ml-apps")
        return found is not None and found.spec.image.endswith(":3")

    until(last_is_seen, "the earlier changes were handed on")
    assert not changed.is_set(), "the agents of all nodes make a pass for each pod of the cluster that mounts a cache"
    api.merge(WHOLE, "llama", {"spec": {"pinned": True}}, "ml-apps")
    assert changed.wait(scaled(10))


def test_a_new_label_of_the_node_is_followed(api: FakeApi, source: KubernetesSource) -> None:
    api.create(GKMCACHES, cache(nodeSelector={"zone": "a"}))
    api.merge(NODES, "node-1", {"metadata": {"labels": {"zone": "a"}}})

    until(source.caches, "it is wanted")


def test_without_its_node_nothing_is_wanted_or_forgotten_and_nothing_written(api: FakeApi) -> None:
    api.create(GKMCACHES, cache())
    source = KubernetesSource(api, "another", Event())
    source.start()
    try:
        assert source.wait(scaled(10))
        assert source.caches() == []
        assert not source.synced
        with pytest.raises(NotWritten, match="another"):
            KubernetesStatusSink(api, "another", lambda: source.node).publish(None, NodeStatus())
    finally:
        source.stop()


def test_a_node_that_is_registered_anew_takes_no_cache_with_it(api: FakeApi, source: KubernetesSource) -> None:
    api.create(GKMCACHES, cache(nodeSelector={"pool": "gpu"}))
    before = until(source.caches, "it is wanted")
    api.delete(NODES, "node-1")
    until(lambda: source.node is None, "the node is gone")
    assert source.caches() == before
    api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": {"pool": "cpu"}}})
    until(lambda: source.caches() == [], "its new labels count")
    assert source.synced


@pytest.mark.parametrize("gone", [False, True])
def test_a_cache_that_cannot_be_read_any_more_is_wanted_as_it_was(
    api: FakeApi,
    source: KubernetesSource,
    gone: bool,  # noqa: FBT001 -- a parameter
) -> None:
    put(api, verified(cache()))
    expected = [WantedCache(REF, IMAGE, ONE, selected=False, uid=UID)]
    until(lambda: source.caches() == expected, "it is seen as it is")
    api.merge(WHOLE, "llama", {"spec": {"image": 7}}, "ml-apps")
    if gone:
        api.forget_history()
        api.cut()
    until(lambda: source._caches.unreadable, "it is known to be unreadable")
    assert source.caches() == expected
    assert source.synced
    api.delete(WHOLE, "llama", "ml-apps")
    until(lambda: source.caches() == [], "it is deleted")
    assert source.synced


@pytest.mark.parametrize("namespace", ["ml-apps", ""])
def test_while_a_cache_never_could_be_read_the_source_is_not_complete(
    api: FakeApi, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = WHOLE if namespace else CLUSTER_WHOLE
    api.create(whole, cache(namespace=namespace, image=7))
    api.create(GKMCACHES, cache("good"))
    source = KubernetesSource(api, "node-1", Event())
    source.start()
    try:
        assert source.wait(scaled(10))
        assert [wanted.ref.name for wanted in source.caches()] == ["good"]
        assert not source.synced
        name = "GKMCache ml-apps/llama" if namespace else "ClusterGKMCache llama"
        told = [
            vars(line)
            for line in caplog.records
            if line.getMessage() == "set of cache objects that cannot be read changed"
        ]
        assert [(line["count"], line["caches"]) for line in told] == [(1, [name])]
        api.merge(whole, "llama", {"spec": {"image": IMAGE}}, namespace or None)
        until(lambda: source.synced, "it is read")
        assert len(source.caches()) == 2
    finally:
        source.stop()


def test_an_agent_that_starts_with_an_unreadable_cache_deletes_nothing(api: FakeApi, node: Node) -> None:
    node.want("llama", digest=ONE)
    assert node.settle()
    api.create(WHOLE, cache(image=7))
    source = KubernetesSource(api, "node-1", Event())
    source.start()
    try:
        assert source.wait(scaled(10))
        node.source = source  # type: ignore[assignment]
        node.restart()
        assert not node.settle()
        assert node.pointer().state is CacheState.READY
        assert node.entries() == {ONE}
        assert node.status().state == "Ready"
        api.delete(WHOLE, "llama", "ml-apps")
        until(lambda: source.synced, "it is gone")
        node.settle()
        assert node.entries() == set()
    finally:
        source.stop()
