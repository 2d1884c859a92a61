"""Each part of a status is read by itself: a part that cannot be read is not known, and never 0."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
from gkm.api import crds
from gkm.api.topology_settings import Topology
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHES, CONFIGMAPS, DEFINITIONS, GKMCACHES, NODES, RUNS
from gkm_cli.clusters.connection import ClusterConnection
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.doctor.runner import ClusterReader
from gkm_cli.output import CommandFailed
from gkm_cli.status import page, screen, showing, summary
from gkm_cli.status.options import StatusOptions, StatusOutput
from gkm_cli.status.parts import Caches, NotKnown, Status, result
from gkm_cli.status.reading import read
from gkm_cli.terminal import Terminal
from support.cli.doctor_lists import CUTOFF
from support.cli.observations import GPUS, node
from support.cli.plan_files import run
from support.cluster.gkm_objects import cache
from support.kube.fake_api import FakeApi


def status_of(api: FakeApi, namespace: str = "") -> Status:
    return read(ClusterReader(api, namespace=namespace, cutoff=CUTOFF), lambda _: nullcontext())


def not_known(found: Status) -> set[str]:
    return {name for name, part in result(found).items() if isinstance(part, NotKnown)}


@pytest.fixture
def api() -> FakeApi:
    """GKM's kinds, a node, a cache of each kind and a run."""
    made = FakeApi()
    for definition in crds.definitions().values():
        made.create(DEFINITIONS, definition)
    made.create(NODES, {"metadata": {"name": "n"}, "status": {}})
    made.create(GKMCACHES, cache("llama", "ml", "registry.example/team/caches/llama:1"))
    made.create(CLUSTERGKMCACHES, cache("shared", None, "registry.example/team/caches/shared:1"))
    made.create(RUNS.of(dict), run())
    return made


def test_an_empty_cluster_is_known_and_has_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = status_of(FakeApi())
    assert (not_known(found), found.unknown) == (set(), [])
    assert (found.caches, found.runs, found.compute_domains) == (Caches((), ()), (), ())
    screen.render(Terminal(), found, 5)
    shown = capsys.readouterr().out
    assert "no caches" in shown
    assert "21 problems" in shown
    assert not {"ready", "ok"} & set(shown.split("Caches")[1].split("Problems")[0].split())


def test_all_parts_are_read(api: FakeApi) -> None:
    found = status_of(api)
    assert not_known(found) == set()
    assert isinstance(found.caches, Caches)
    assert [(kind.kind, kind.total) for kind in found.caches.kinds] == [("ClusterGKMCache", 1), ("GKMCache", 1)]


PARTS = {"nodes", "caches", "waitingPods", "fabricDomains", "computeDomains", "runs"}


def test_without_rights_no_part_is_known_and_each_right_is_named(
    api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.fault = lambda verb, plural: ApiError(403, "Forbidden", f"cannot {verb} {plural}")
    found = status_of(api)
    assert not_known(found) == PARTS
    assert set(found.unknown) == PARTS | {"problems"}
    screen.render(Terminal(), found, 5)
    shown = capsys.readouterr().out
    for right in ("list nodes", "list pods in all namespaces", "get customresourcedefinitions"):
        assert f"missing right: {right}" in shown
    assert "0 " not in shown.split("Problems")[0]


@pytest.mark.parametrize(
    ("plural", "unknown"),
    [
        ("nodes", {"nodes", "fabricDomains"}),
        ("gkmcaches", {"caches"}),
        ("gkmcachenodes", {"caches"}),
        ("pods", {"nodes", "waitingPods"}),
        ("runs", {"runs"}),
        ("configmaps", {"fabricDomains"}),
    ],
)
def test_an_api_that_fails_for_one_kind_leaves_the_other_parts_known(
    api: FakeApi, plural: str, unknown: set[str]
) -> None:
    api.fault = lambda _verb, asked: ApiError(500, "InternalError", "etcd is away") if asked == plural else None
    found = status_of(api)
    assert not_known(found) == unknown
    assert "etcd is away" in str(result(found))


UNSERVED = "with GPUs and without a ready agent: n</div>"


@pytest.mark.parametrize(
    ("delivery", "unread", "style"),
    [("csi", "", "red"), ("image", "", ""), ("auto", "", ""), ("csi", "configmaps", "")],
)
def test_a_node_without_an_agent_is_a_fault_where_doctor_finds_that_it_needs_one(
    api: FakeApi, delivery: str, unread: str, style: str
) -> None:
    """With `delivery: image` no DaemonSet exists, and each node with GPUs was red."""
    metadata = {"name": "gkm-config", "namespace": "gkm-system"}
    api.create(CONFIGMAPS, {"metadata": metadata, "data": {"config.yaml": f"delivery: {delivery}"}})
    api.put(NODES, {"metadata": {"name": "n"}, "status": GPUS})
    api.fault = lambda _verb, plural: ApiError(403, "Forbidden", "no") if plural == unread else None
    shown = "".join(page.html(status_of(api), None))
    assert f'<div class="{style}">{UNSERVED}' in shown, "the color says another thing than doctor does"


def test_a_configuration_that_cannot_be_used_is_no_default(api: FakeApi) -> None:
    metadata = {"name": "gkm-config", "namespace": "gkm-system"}
    api.create(CONFIGMAPS, {"metadata": metadata, "data": {"config.yaml": "topology: 7"}})
    assert not_known(status_of(api)) == {"fabricDomains"}


def test_kinds_of_another_product_have_no_caches_that_count(api: FakeApi) -> None:
    name = "gkmcaches.gkm.io"
    definition = api.get(DEFINITIONS, name)
    definition["spec"]["scope"] = "Cluster"
    api.delete(DEFINITIONS, name)
    api.create(DEFINITIONS, definition)
    found = status_of(api)
    assert not_known(found) >= {"caches", "runs"}
    assert "another product's" in str(found.caches)


def test_a_namespace_leaves_out_what_is_of_the_whole_cluster(api: FakeApi) -> None:
    found = status_of(api, "ml")
    assert (found.nodes, found.fabric_domains) == (None, None)
    assert isinstance(found.caches, Caches)
    assert [one.name for one in found.caches.caches] == ["llama"]
    assert "nodes/label" in found.problems.left_out
    assert "caches/failed" not in found.problems.left_out


def test_a_reader_of_one_namespace_needs_no_right_on_definitions(api: FakeApi) -> None:
    def fault(_verb: str, plural: str) -> ApiError | None:
        return ApiError(403, "Forbidden", "no") if plural == "customresourcedefinitions" else None

    api.fault = fault
    found = status_of(api, "ml")
    assert isinstance(found.caches, Caches)
    assert len(found.caches.caches) == 1


def test_the_screen_of_a_large_cluster_is_bounded(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(200):
        api.create(GKMCACHES, cache(f"c{number}", "ml", "registry.example/team/caches/llama:1"))
    domain = "b4d4d4d4-0000-4000-8000-000000000001"
    made = [
        node(f"gpu-{number:05}", labels={"nvidia.com/gpu.clique": f"{domain}.{number // 18}"}, **GPUS)
        for number in range(10_000)
    ]
    found = replace(
        status_of(api), nodes=summary.nodes(made, ()), fabric_domains=summary.fabric_domains(made, Topology())
    )
    screen.render(Terminal(), found, showing.ROWS)
    shown = capsys.readouterr().out
    assert "10000 nodes, 0 ready; 10000 with GPUs, 0 of these with a ready agent" in shown
    assert "gpu-00000, gpu-00001, gpu-00002, gpu-00003, gpu-00004 and 9995 more" in shown
    assert "556 domains, 0 with impaired nodes, 556 with nodes whose health is not known" in shown
    assert "... and 197 more caches that are not ready" in shown
    assert len(shown.splitlines()) < 70
    assert max(map(len, shown.splitlines())) < 500


def test_hostile_text_stays_on_its_line(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.fault = lambda *_: ApiError(500, "InternalError", "\x1b[2J\r\n[red]x[/red]\u202e" + "x" * 5000)
    screen.render(Terminal(), status_of(api), 5)
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())


def test_a_part_that_is_not_known_fails_the_command(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(showing, "connected", lambda *_: ClusterConnection(api, "default"))
    showing.show_status(ClusterOptions(), StatusOptions())
    api.fault = lambda _verb, plural: ApiError(500, "InternalError", "away") if plural == "runs" else None
    # The reason is that runs cannot be listed; the other parts are printed.
    with pytest.raises(CommandFailed, match=r"^not known: runs; see the reasons above$"):
        showing.show_status(ClusterOptions(), StatusOptions(output=StatusOutput.JSON))
    assert '"notKnown": "cannot list runs.gkm.io: away"' in capsys.readouterr().out


class CalledOff(Exception):
    """The end of a watch in a test."""


def test_a_watch_shows_it_again_and_pauses_longer_than_it_reads(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    clock = iter([0.0, 1.0, 10.0, 20.0])

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise CalledOff

    monkeypatch.setattr(showing, "connected", lambda *_: ClusterConnection(api, "default"))
    monkeypatch.setattr("gkm_cli.status.showing.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("gkm_cli.status.showing.time.sleep", pause)
    monkeypatch.setattr(showing, "read", lambda *_: status_of(api))
    with pytest.raises(CalledOff):
        showing.show_status(ClusterOptions(), StatusOptions(watch=True))
    assert capsys.readouterr().out.count("status at ") == 2
    assert pauses == [showing.MIN_PAUSE_SECONDS, 10 * showing.READING_SHARE]
