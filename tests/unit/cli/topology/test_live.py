"""`gkm topology` of a cluster instead of lists: its nodes, its pods and the settings of its controllers."""

import json
from typing import Any

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, NODES, PROVIDER_TREES, Resource
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.provider_trees import pack
from gkm_cli.clusters.connection import ClusterConnection
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.clusters.reads import Unreadable
from gkm_cli.clusters.usage import PODS
from gkm_cli.topology import showing
from gkm_cli.topology.options import ShowOutput, SourceOptions
from support.cli.plan_files import node, pod
from support.kube.fake_api import FakeApi
from support.topology.clusters import topology

Json = dict[str, Any]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """Two nodes with eight GPUs in a rack of a block; a pod takes five of one."""
    made = FakeApi()
    monkeypatch.setattr("gkm_cli.topology.live.connected", lambda _: ClusterConnection(made, "default"))
    for number in range(2):
        add(made, NODES, node(f"gpu-{number}", "rack0", "b0"))
    add(made, PODS, pod("busy", "gpu-0", 5))
    return made


def add(api: FakeApi, resource: Resource[Any], item: Json) -> None:
    api.create(resource, item)
    name, where = item["metadata"]["name"], item["metadata"].get("namespace")
    api.merge(resource, name, {"status": item["status"]}, where, subresource="status")


def shown(capsys: pytest.CaptureFixture[str], output: ShowOutput = ShowOutput.JSON) -> str:
    showing.print_capacity(SourceOptions(), ClusterOptions(), [], "", output)
    return capsys.readouterr().out


@pytest.mark.usefixtures("api")
def test_nodes_and_pods_of_the_cluster_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(capsys))
    assert (found["nodeCount"], found["gpus"], found["freeGPUs"], found["notes"]) == (2, 16, 11, [])


def test_the_levels_are_those_of_the_controllers(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    text = "topology: {levels: [{name: rack, keys: [example.com/rack]}, {name: cluster}]}"
    metadata = {"name": "gkm-config", "namespace": "gkm-system"}
    api.create(CONFIGMAPS, {"metadata": metadata, "data": {"config.yaml": text}})
    assert json.loads(shown(capsys))["levels"] == ["rack", "cluster"]


def test_settings_that_cannot_be_read_are_said(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.fault = lambda _verb, plural: ApiError(403, "Forbidden", "no") if plural == "configmaps" else None
    (note,) = json.loads(shown(capsys))["notes"]
    assert note.startswith(
        "the settings are not those of ConfigMap gkm-system/gkm-config: missing right: get configmaps"
    )


def test_nodes_are_where_the_trees_of_providers_say(api: FakeApi, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = {"name": "gkm-config", "namespace": "gkm-system"}
    text = "topology: {providers: [{name: labels}, {name: ufm}, {name: lldp}]}"
    api.create(CONFIGMAPS, {"metadata": metadata, "data": {"config.yaml": text}})
    tree = pack([HyperNode("switch-1", "block", (Member("Node", "gpu-0"),))])
    api.create(PROVIDER_TREES, {"metadata": {"name": "ufm"}, "spec": {"revision": 1, "tree": tree}})
    found = json.loads(shown(capsys))
    assert "switch-1" in {each["name"] for each in found["domains"] if each["level"] == "block"}, (
        "the block is the one that labels name, and the controllers take the one that ufm measures"
    )
    assert found["notes"] == [
        "the topology of lldp is not used here: it has written no tree, and the controllers wait for the first"
    ]


@pytest.mark.parametrize("plural", ["nodes", "pods"])
def test_a_cluster_that_cannot_be_read_is_no_empty_tree(api: FakeApi, plural: str) -> None:
    api.fault = lambda _verb, asked: ApiError(500, "InternalError", "etcd is away") if asked == plural else None
    # The reason is the list that the API server does not give.
    with pytest.raises(Unreadable, match=f"cannot list {plural}: etcd is away"):
        showing.print_capacity(SourceOptions(), ClusterOptions(), [], "", ShowOutput.TABLE)


@pytest.mark.usefixtures("api")
def test_the_page_has_the_picture_and_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, ShowOutput.HTML)
    assert text.count("<svg ") == 1
    assert "11 of 16 GPUs are free" in text
    assert "<th>free nodes</th>" in text


def test_lists_and_a_cluster_are_not_mixed() -> None:
    done = topology("show", "--pods", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --pods is given without --nodes; ")
    done = topology("show", "--nodes", "-", "--context", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --nodes is given with --kubeconfig or --context; ")
