"""What a node says, as objects in the Kubernetes API."""

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from gkm.api.nodes import GPUGroup, NodeCacheStatus, NodeStatus
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES, NODES, Resource
from gkm_agent.interfaces import NotWritten
from gkm_agent.kubernetes.sinks import FIELD_MANAGER, KubernetesStatusSink
from gkm_agent.kubernetes.source import KubernetesSource
from gkm_agent.report.objects import node_label, without_conditions
from gkm_agent.report.publisher import StatusPublisher
from msgspec import structs
from support.agent.fakes import digest_of
from support.host.waiting import scaled
from support.kube.fake_api import FakeApi

ONE = digest_of("one")
STATUS = NodeStatus(
    gpus=[GPUGroup(ids=[0], gpu_type="nvidia-h100", arch="90")],
    caches={"llama": NodeCacheStatus(state="Ready", digest=ONE), "other": NodeCacheStatus(state="Failed")},
)


@pytest.fixture
def sink(api: FakeApi, source: KubernetesSource) -> KubernetesStatusSink:
    return KubernetesStatusSink(api, "node-1", lambda: source.node)


def test_a_node_object_names_its_owner(api: FakeApi, sink: KubernetesStatusSink) -> None:
    sink.publish("ml-apps", STATUS)

    found = api.get(GKMCACHENODES, "node-1", "ml-apps")
    assert without_conditions(found.status) == STATUS
    assert found.spec.node_name == "node-1"
    assert found.metadata.labels == {"gkm.node": "node-1", "kubernetes.io/hostname": "host-1"}
    assert found.metadata.annotations["gkm.io/currentCaches"] == "1 Ready, 1 Failed"
    (owner,) = found.metadata.owner_references
    assert (owner.kind, owner.name) == ("Node", "node-1")
    assert owner.uid


def test_the_cluster_wide_object_has_no_namespace(api: FakeApi, sink: KubernetesStatusSink) -> None:
    sink.publish(None, STATUS)

    assert api.get(CLUSTERGKMCACHENODES, "node-1").metadata.namespace == ""


def test_outdated_fields_leave_the_object(api: FakeApi, sink: KubernetesStatusSink) -> None:
    sink.publish("ml-apps", STATUS)
    sink.publish("ml-apps", NodeStatus(caches={"llama": NodeCacheStatus(state="Ready")}))

    found = api.get(GKMCACHENODES, "node-1", "ml-apps").status
    assert list(found.caches) == ["llama"]
    assert (found.caches["llama"].digest, found.gpus) == (None, [])


def test_saying_the_same_after_a_restart_changes_nothing(
    api: FakeApi, sink: KubernetesStatusSink, source: KubernetesSource
) -> None:
    sink.publish("ml-apps", STATUS)
    sink.publish(None, STATUS)
    before = api.get(GKMCACHENODES, "node-1", "ml-apps").metadata
    after_restart = KubernetesStatusSink(api, "node-1", lambda: source.node)

    assert after_restart.scopes() == {"ml-apps", None}
    after_restart.publish("ml-apps", STATUS)

    assert api.get(GKMCACHENODES, "node-1", "ml-apps").metadata == before


def test_deleted_or_changed_objects_are_repaired_without_a_list(api: FakeApi, sink: KubernetesStatusSink) -> None:
    publisher = StatusPublisher(sink)
    publisher.set({"ml-apps": STATUS, None: STATUS})
    assert publisher.write()
    api.delete(GKMCACHENODES, "node-1", "ml-apps")
    forged = api.get(CLUSTERGKMCACHENODES, "node-1")
    api.apply(CLUSTERGKMCACHENODES, structs.replace(forged, status=NodeStatus()), field_manager=FIELD_MANAGER)
    api.calls.clear()

    publisher.rewrite_all()
    assert publisher.write()

    assert without_conditions(api.get(GKMCACHENODES, "node-1", "ml-apps").status) == STATUS
    assert without_conditions(api.get(CLUSTERGKMCACHENODES, "node-1").status) == STATUS
    assert "list" not in {verb for verb, _, _ in api.calls}


def test_objects_of_other_nodes_are_none_of_ours(
    api: FakeApi, sink: KubernetesStatusSink, source: KubernetesSource
) -> None:
    del source
    api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-2"}})
    other = KubernetesSource(api, "node-2", Event())
    other.start()
    try:
        assert other.wait(scaled(10))
        KubernetesStatusSink(api, "node-2", lambda: other.node).publish("ml-apps", STATUS)
        assert sink.scopes() == set()
    finally:
        other.stop()


def test_removing_is_idempotent(sink: KubernetesStatusSink) -> None:
    sink.publish("ml-apps", STATUS)
    for _ in range(2):
        sink.remove("ml-apps")

    assert sink.scopes() == set()


@pytest.mark.parametrize("scope", ["ml-apps", None])
@pytest.mark.parametrize("is_wanted", [True, False])
def test_an_object_of_another_version_stops_no_report(
    api: FakeApi,
    sink: KubernetesStatusSink,
    scope: str | None,
    is_wanted: bool,  # noqa: FBT001 -- a parameter
) -> None:
    resource: Resource[Any] = CLUSTERGKMCACHENODES if scope is None else GKMCACHENODES
    sink.publish(scope, STATUS)
    (stored,) = api.stored(resource.plural)
    api.put(resource.of(dict), stored | {"status": {"caches": {"llama": {"state": "OfAnotherVersion"}}}})
    with pytest.raises(ApiError, match="cannot be read"):
        api.get(resource, "node-1", scope)
    publisher = StatusPublisher(sink)
    publisher.set({"other": STATUS, scope: STATUS} if is_wanted else {"other": STATUS})

    assert publisher.write(), "one unreadable object of this node keeps its reports from the API"

    if is_wanted:
        assert without_conditions(api.get(resource, "node-1", scope).status) == STATUS
    else:
        assert api.find(resource.of(dict), "node-1", scope) is None, "its old report stays for ever"


CALLS: dict[str, Callable[[KubernetesStatusSink], object]] = {
    "list": KubernetesStatusSink.scopes,
    "get": KubernetesStatusSink.scopes,
    "apply": lambda sink: sink.publish("ml-apps", STATUS),
    "delete": lambda sink: sink.remove("ml-apps"),
}


@pytest.mark.parametrize("verb", CALLS)
def test_an_unavailable_api_server_is_reported(api: FakeApi, sink: KubernetesStatusSink, verb: str) -> None:
    api.fault = lambda called, _: ApiError(0, "Unreachable", "no answer") if called == verb else None
    with pytest.raises(NotWritten, match="no answer"):
        CALLS[verb](sink)


def test_the_label_of_a_long_node_name_is_cut_and_stays_unique() -> None:
    one, two = ("n" * 80 + end for end in ("a", "b"))

    assert node_label("node-1") == "node-1"
    assert len(node_label(one)) <= 63
    assert node_label(one) != node_label(two)


def test_the_field_manager_is_named_after_the_agent() -> None:
    assert FIELD_MANAGER == "gkm-agent"


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (ApiError(403, "Forbidden", "the namespace is being terminated"), True),
        (ApiError(500, "InternalError", "failed calling webhook"), True),
        (ApiError(0, "Unreachable", "away"), False),
        (ApiError(429, "TooManyRequests", "overloaded"), False),
        (ApiError(503, "ServiceUnavailable", "later", retry_after=7.0), False),
    ],
    ids=lambda value: value.reason if isinstance(value, ApiError) else "",
)
def test_a_refused_object_differs_from_a_server_that_is_away(
    api: FakeApi, sink: KubernetesStatusSink, error: ApiError, *, refused: bool
) -> None:
    api.fault = lambda verb, _plural: error if verb == "apply" else None

    with pytest.raises(NotWritten) as caught:
        sink.publish("ml-apps", STATUS)
    assert caught.value.refused is refused
