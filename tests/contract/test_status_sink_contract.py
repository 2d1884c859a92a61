"""StatusSink: one body for the dictionary of tests, the directory of standalone mode and the Kubernetes API."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gkm.api.meta import ObjectMeta
from gkm.api.nodes import CacheNode, NodeCacheStatus, NodeStatus
from gkm.hoststate.names import CLUSTER_SCOPE
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES, NODES, Resource
from gkm_agent.interfaces import NotWritten, StatusSink
from gkm_agent.kubernetes.sinks import KubernetesStatusSink
from gkm_agent.kubernetes.source import NodeView
from gkm_agent.report.objects import without_conditions
from gkm_agent.standalone.sinks import FileStatusSink
from support.agent.fakes import FakeSink
from support.host.waiting import until
from support.kube.fake_api import FakeApi
from support.kube.our_kinds import status_writer

NODE = "status-sink-contract"
SCOPES = ("default", "kube-public", None)
REFUSED = "refuses-every-write"
READY = NodeStatus(caches={"llama": NodeCacheStatus(state="Ready"), "mistral": NodeCacheStatus(state="Failed")})
FAILED = NodeStatus(caches={"llama": NodeCacheStatus(state="Failed")})


@dataclass
class Outside:
    """A place where a node publishes; writes to the scope `REFUSED` fail after `refuse`."""

    sink: Callable[[], StatusSink]
    read: Callable[[str | None], NodeStatus | None]
    refuse: Callable[[], None]
    cause: str
    """Why a write fails after `refuse`, a pattern."""


def in_memory() -> Outside:
    held: dict[str | None, NodeStatus] = {}
    made: list[FakeSink] = []

    def sink() -> FakeSink:
        made.append(FakeSink(held))
        return made[-1]

    def refuse() -> None:
        for one in made:
            one.away = True

    return Outside(sink, held.get, refuse, "away")


def in_files(directory: Path) -> Outside:
    def read(scope: str | None) -> NodeStatus | None:
        path = directory / (scope or CLUSTER_SCOPE) / f"{NODE}.yaml"
        return msgspec.yaml.decode(path.read_bytes(), type=CacheNode).status if path.exists() else None

    def refuse() -> None:
        (directory / REFUSED).write_text("in the way")

    return Outside(lambda: FileStatusSink(directory, NODE), read, refuse, f"{REFUSED}/.*: File exists")


def in_kubernetes(api: Api) -> Outside:
    uid = api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})["metadata"]["uid"]
    owner = NodeView(ObjectMeta(NODE, uid=uid))

    def read(scope: str | None) -> NodeStatus | None:
        resource: Resource[Any] = CLUSTERGKMCACHENODES if scope is None else GKMCACHENODES
        try:
            status: NodeStatus = api.get(resource, NODE, scope).status
        except ApiError as error:
            assert error.not_found
            return None
        return status

    def refuse() -> None:
        """Nothing to do on a real server: it has no such namespace."""
        if isinstance(api, FakeApi):
            api.fault = lambda verb, _: ApiError(404, "NotFound", "no such namespace") if verb == "apply" else None

    cause = "no such namespace" if isinstance(api, FakeApi) else f'namespaces "{REFUSED}" not found'
    return Outside(lambda: KubernetesStatusSink(api, NODE, lambda: owner), read, refuse, cause)


@pytest.fixture(params=["memory", "files", "fake API", pytest.param("real API", marks=pytest.mark.apiserver)])
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outside]:
    if request.param == "memory":
        yield in_memory()
    elif request.param == "files":
        yield in_files(tmp_path)
    else:
        real = request.param == "real API"
        api: Api = connect(str(status_writer(request.getfixturevalue("gkm_cluster")))) if real else FakeApi()
        made = in_kubernetes(api)
        try:
            until(lambda: lists(made.sink()), "the server serves kinds that were just installed")
            yield made
        finally:
            for scope in SCOPES:
                with suppress(NotWritten):
                    made.sink().remove(scope)
            api.delete(NODES, NODE)


def lists(sink: StatusSink) -> bool:
    with suppress(NotWritten):
        sink.scopes()
        return True
    return False


def read(outside: Outside, scope: str | None) -> NodeStatus | None:
    status = outside.read(scope)
    return status and without_conditions(status)


def test_each_scope_has_its_own_object(outside: Outside) -> None:
    sink = outside.sink()
    assert sink.scopes() == set()
    for scope, status in zip(SCOPES, (READY, FAILED, NodeStatus()), strict=True):
        sink.publish(scope, status)
    assert sink.scopes() == set(SCOPES)
    assert [read(outside, scope) for scope in SCOPES] == [READY, FAILED, NodeStatus()]


def test_the_last_status_counts_and_nothing_of_an_earlier_one_is_left(outside: Outside) -> None:
    sink = outside.sink()
    for status in (READY, FAILED, FAILED):
        sink.publish("default", status)
    assert read(outside, "default") == FAILED


def test_the_sink_of_a_restarted_agent_finds_the_objects_and_replaces_them(outside: Outside) -> None:
    before = outside.sink()
    for scope in SCOPES:
        before.publish(scope, READY)
    after = outside.sink()
    assert after.scopes() == set(SCOPES)
    after.publish(None, FAILED)
    after.remove("default")
    assert after.scopes() == {"kube-public", None}
    assert [read(outside, scope) for scope in SCOPES] == [None, READY, FAILED]


def test_removing_is_idempotent_and_spares_other_scopes(outside: Outside) -> None:
    sink = outside.sink()
    sink.publish("default", READY)
    sink.publish(None, READY)
    for scope in ("default", "default", "kube-public"):
        sink.remove(scope)
    assert sink.scopes() == {None}
    assert (read(outside, "default"), read(outside, None)) == (None, READY)


def test_a_removed_object_can_be_published_again(outside: Outside) -> None:
    sink = outside.sink()
    for _ in range(2):
        sink.publish("default", READY)
        assert read(outside, "default") == READY
        sink.remove("default")
        assert read(outside, "default") is None


def test_a_status_that_cannot_be_written_is_an_error_with_its_cause(outside: Outside) -> None:
    sink = outside.sink()
    outside.refuse()
    for _ in range(2):
        with pytest.raises(NotWritten, match=outside.cause) as caught:
            sink.publish(REFUSED, READY)
        assert caught.value.retry_after >= 0
    assert outside.read(REFUSED) is None
