"""Reports on their way outside: written on change only, again while nobody takes them, and nothing that is not ours."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from gkm.api.fabrics import NodeFabricStatus
from gkm.api.meta import ObjectMeta
from gkm.hoststate.pacing import Backoff
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, NODES, Json, Resource
from gkm_agent.fabric.report import FabricReport
from gkm_agent.interfaces import NotWritten
from gkm_agent.kubernetes.sinks import NODEFABRICS, KubernetesFabricSink
from gkm_agent.kubernetes.source import NodeView
from gkm_agent.report import publisher as module
from gkm_agent.report.objects import without_conditions
from gkm_agent.report.publisher import Publisher
from gkm_agent.standalone.sinks import FileFabricSink
from msgspec import convert, structs
from support.agent.fabric_fakes import FakeFabricSink
from support.agent.fabric_values import DOMAIN, report
from support.host.waiting import until
from support.kube.fake_api import FakeApi

UNTYPED: Resource[Json] = Resource("gkm.io/v1alpha1", "NodeFabric", "nodefabrics", namespaced=False, type=Json)
SOON = Backoff(0.001, 0.002)
GOOD, BAD = report(), report("", "unhealthy")
FOREIGN = {"pool": "gpu", "gkm.io/other": "x"}


def node(uid: str = "uid-n", labels: dict[str, str] | None = None) -> dict[str, Any]:
    metadata = {"name": "node-1", "uid": uid, "labels": FOREIGN if labels is None else labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [{"key": "a"}]}}


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.create(NODES, node())
    return api


def view(api: FakeApi) -> NodeView:
    return NodeView(convert(api.get(NODES, "node-1")["metadata"], ObjectMeta, strict=False))


@pytest.fixture
def sink(api: FakeApi) -> KubernetesFabricSink:
    return KubernetesFabricSink(api, "node-1", lambda: view(api))


def writes(api: FakeApi) -> list[tuple[str, str]]:
    return [(verb, plural) for verb, plural, _ in api.calls if verb not in {"get", "list", "watch"}]


def test_a_report_becomes_an_object_and_labels(api: FakeApi, sink: KubernetesFabricSink) -> None:
    sink.publish(GOOD)

    found = api.get(NODEFABRICS, "node-1")
    assert structs.replace(without_conditions(found.status), last_updated=None) == GOOD.status
    assert found.status.last_updated is not None
    assert found.spec.node_name == "node-1"
    (owner,) = found.metadata.owner_references
    assert (owner.kind, owner.uid) == ("Node", "uid-n")
    assert view(api).metadata.labels == FOREIGN | dict(GOOD.labels.labels)
    assert api.get(NODES, "node-1")["spec"] == node()["spec"]


def test_the_same_again_writes_nothing_also_after_a_restart(api: FakeApi, sink: KubernetesFabricSink) -> None:
    sink.publish(GOOD)
    api.calls.clear()
    sink.publish(GOOD)
    KubernetesFabricSink(api, "node-1", lambda: view(api)).publish(GOOD)

    assert writes(api) == []


def test_only_a_change_is_written_and_moves_the_time(api: FakeApi, sink: KubernetesFabricSink) -> None:
    sink.publish(GOOD)
    forged = structs.replace(GOOD.status, last_updated="2026-01-01T00:00:00Z")
    whole = {"apiVersion": "gkm.io/v1alpha1", "kind": "NodeFabric", "metadata": {"name": "node-1"}}
    old = KubernetesFabricSink(api, "node-1", lambda: view(api))
    api.apply(
        NODEFABRICS, whole | {"status": {"lastUpdated": forged.last_updated}}, field_manager="t", subresource="status"
    )
    old.publish(GOOD)
    assert api.get(NODEFABRICS, "node-1").status.last_updated == "2026-01-01T00:00:00Z"
    old.publish(BAD)
    found = api.get(NODEFABRICS, "node-1").status
    assert (found.domain, found.health) == ("", "unhealthy")
    assert found.last_updated != "2026-01-01T00:00:00Z"
    assert view(api).metadata.labels == FOREIGN | {"gkm.io/fabric-health": "unhealthy"}


def test_a_patch_names_only_labels_of_ours_that_differ(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    patches: list[Any] = []
    merge = api.merge

    def noted(resource: Any, name: str, patch: Any, namespace: str | None = None) -> Any:  # noqa: ANN401 -- as Api has it
        patches.append((name, patch))
        return merge(resource, name, patch, namespace)

    monkeypatch.setattr(api, "merge", noted)
    sink = KubernetesFabricSink(api, "node-1", lambda: view(api))
    sink.publish(GOOD)
    sink.publish(BAD)
    assert patches == [
        ("node-1", {"metadata": {"labels": {"gkm.io/fabric-health": "healthy", "gkm.io/fabric-domain": DOMAIN}}}),
        ("node-1", {"metadata": {"labels": {"gkm.io/fabric-domain": None, "gkm.io/fabric-health": "unhealthy"}}}),
    ]


def test_labels_that_another_client_changed_or_removed_are_repaired(api: FakeApi, sink: KubernetesFabricSink) -> None:
    sink.publish(GOOD)
    api.merge(
        NODES, "node-1", {"metadata": {"labels": {"gkm.io/fabric-domain": "forged", "gkm.io/fabric-health": None}}}
    )
    sink.publish(GOOD)
    assert view(api).metadata.labels == FOREIGN | dict(GOOD.labels.labels)


def test_a_view_that_lags_behind_our_own_patch_is_not_patched_again(api: FakeApi) -> None:
    stale = view(api)
    sink = KubernetesFabricSink(api, "node-1", lambda: stale)
    for _ in range(3):
        sink.publish(GOOD)
    assert writes(api).count(("merge", "nodes")) == 1


def test_labels_that_are_refused_keep_no_status_from_the_api(api: FakeApi, sink: KubernetesFabricSink) -> None:
    refused = ApiError(403, "Forbidden", "a policy of the cluster allows no labels")
    api.fault = lambda verb, plural: refused if (verb, plural) == ("merge", "nodes") else None
    with pytest.raises(NotWritten, match="allows no labels"):
        sink.publish(GOOD)
    stored = api.find(NODEFABRICS, "node-1")
    assert stored, "the controllers learn nothing of the fabric, because another object refuses its labels"
    assert stored.status.domain == DOMAIN


def test_a_deleted_object_is_written_again_after_invalidation(api: FakeApi, sink: KubernetesFabricSink) -> None:
    sink.publish(GOOD)
    moment = api.get(NODEFABRICS, "node-1").status.last_updated
    api.delete(NODEFABRICS, "node-1")
    sink.invalidate()
    sink.publish(GOOD)
    assert api.get(NODEFABRICS, "node-1").status.last_updated == moment


def test_a_node_that_is_registered_anew_owns_its_objects(api: FakeApi, sink: KubernetesFabricSink) -> None:
    sink.publish(GOOD)
    api.delete(NODES, "node-1")
    api.create(NODES, node("uid-2", {}))
    sink.publish(GOOD)
    assert [owner.uid for owner in api.get(NODEFABRICS, "node-1").metadata.owner_references] == ["uid-2"]
    assert view(api).metadata.labels == dict(GOOD.labels.labels)


def test_without_its_node_nothing_is_written(api: FakeApi) -> None:
    sink = KubernetesFabricSink(api, "node-1", lambda: None)
    for attempt in (partial(sink.publish, GOOD), partial(sink.survey, b"x")):
        with pytest.raises(NotWritten, match="the Node node-1 of this agent does not exist, or is not read yet"):
            attempt()
    assert api.calls == [("create", "nodes", "node-1")]


@pytest.mark.parametrize("part", [{"spec": 7}, {"status": {"health": "of another version"}}], ids=["spec", "status"])
def test_an_object_that_cannot_be_read_is_written_anew(api: FakeApi, sink: KubernetesFabricSink, part: Json) -> None:
    whole = {"apiVersion": "gkm.io/v1alpha1", "kind": "NodeFabric", "metadata": {"name": "node-1"}}
    api.put(UNTYPED, whole | {"spec": {"nodeName": "node-1"}} | part)
    with pytest.raises(ApiError, match="cannot be read"):
        api.get(NODEFABRICS, "node-1")
    sink.publish(GOOD)
    assert api.get(NODEFABRICS, "node-1").status.domain == DOMAIN


def test_a_survey_is_written_on_change_only(api: FakeApi, sink: KubernetesFabricSink) -> None:
    for packed in (b"one", b"one", b"two"):
        sink.survey(packed)
    assert writes(api).count(("apply", "configmaps")) == 2
    name = "gkm-ibnetdiscover-node-1"
    assert api.get(CONFIGMAPS, name, "gkm-system")["data"] == {"ibnetdiscover.gz.b64": "dHdv"}


@pytest.mark.parametrize("verb", ["get", "apply", "merge"])
def test_an_unavailable_api_server_is_reported_and_all_is_written_after_its_return(
    api: FakeApi, sink: KubernetesFabricSink, verb: str
) -> None:
    api.fault = lambda called, plural: (
        ApiError(0, "Unreachable", "no answer", 7) if called == verb and (called, plural) != ("get", "nodes") else None
    )
    with pytest.raises(NotWritten, match="no answer") as caught:
        sink.publish(GOOD)
    assert isinstance(caught.value.__cause__, ApiError)
    api.fault = lambda _verb, _plural: None
    sink.publish(GOOD)
    assert api.get(NODEFABRICS, "node-1").status.domain == DOMAIN
    assert view(api).metadata.labels == FOREIGN | dict(GOOD.labels.labels)


def test_without_kubernetes_it_is_a_file_that_is_replaced_on_change_only(tmp_path: Path) -> None:
    path = tmp_path / "nodes" / "node-1.fabric.yaml"
    sink = FileFabricSink(tmp_path / "nodes", "node-1")
    sink.publish(GOOD)
    first = path.stat().st_ino
    sink.publish(GOOD)
    sink.invalidate()
    FileFabricSink(tmp_path / "nodes", "node-1").publish(GOOD)
    assert path.stat().st_ino == first
    said = yaml.load(path.read_text(), yaml.CSafeLoader)
    assert (said["kind"], said["metadata"]["name"], said["status"]["domain"]) == ("NodeFabric", "node-1", DOMAIN)
    sink.publish(BAD)
    assert yaml.load(path.read_text(), yaml.CSafeLoader)["status"]["health"] == "unhealthy"


@pytest.mark.parametrize("text", ["", "{", "kind: NodeFabric\nstatus: 7\n", "\xff", "kind: Other\n", "!!bool x"])
def test_an_invalid_file_is_written_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node-1.fabric.yaml"
    path.write_text(text, encoding="latin-1")
    FileFabricSink(tmp_path, "node-1").publish(GOOD)
    assert yaml.load(path.read_text(), yaml.CSafeLoader)["status"]["domain"] == DOMAIN


def test_without_kubernetes_a_survey_is_a_file(tmp_path: Path) -> None:
    sink = FileFabricSink(tmp_path, "node-1")
    path = tmp_path / "node-1.ibnetdiscover.gz"
    sink.survey(b"one")
    first = path.stat().st_ino
    sink.survey(b"one")
    assert (path.stat().st_ino, path.read_bytes()) == (first, b"one")


def test_an_unwritable_directory_is_reported_as_not_written(tmp_path: Path) -> None:
    (tmp_path / "nodes").touch()
    sink = FileFabricSink(tmp_path / "nodes", "node-1")
    for attempt in (partial(sink.publish, GOOD), partial(sink.survey, b"x")):
        with pytest.raises(NotWritten, match=r"node-1\..*: File exists"):
            attempt()


def test_while_the_sink_is_away_the_newest_waits() -> None:
    sink = FakeFabricSink(away=True)
    writer = Publisher(sink, "fabric")
    assert writer.write()
    writer.set(GOOD)
    assert not writer.write()
    writer.set(BAD)
    assert not writer.write()
    assert not writer.flush(0)
    sink.away = False
    assert writer.write()
    assert writer.flush(0)
    assert sink.reports == [BAD]


def test_its_thread_tries_again_and_survives_a_defect() -> None:
    class Defective(FakeFabricSink):
        def publish(self, report: FabricReport) -> None:
            if not self.invalidations:
                raise ZeroDivisionError
            super().publish(report)

    sink = Defective(away=True)
    writer = Publisher(sink, "fabric", SOON)
    writer.start()
    try:
        writer.set(GOOD)
        until(lambda: sink.invalidations, "the defect was met")
        sink.away = False
        assert writer.flush(20)
    finally:
        writer.stop(20)
    assert sink.reports == [GOOD]
    assert not writer._thread.is_alive()


def test_the_publisher_obeys_the_pause_of_the_server() -> None:
    class Busy(FakeFabricSink):
        def publish(self, report: FabricReport) -> None:
            del report
            raise NotWritten("busy", 17)

    writer = Publisher(Busy(), "fabric")
    writer.set(GOOD)
    assert not writer.write()
    assert writer._retry_after == 17


def test_all_is_written_again_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.02)
    sink = FakeFabricSink()
    writer = Publisher(sink, "fabric")
    writer.start()
    try:
        writer.set(GOOD)
        until(lambda: sink.invalidations > 2 and len(sink.reports) > 2, "it is doubted and written again")
    finally:
        writer.stop(20)


def test_an_empty_status_is_one_that_the_api_takes() -> None:
    assert convert({}, NodeFabricStatus) == NodeFabricStatus()
