"""A cluster instead of lists: nodes, pods and live plans count as in the controllers. The API is in memory."""

import copy
import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gkm.api.runs import RUN_LABEL
from gkm.api.topology_settings import HyperNodes, Topology, TopologyProvider
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, NODES, PLACEMENTPLANS, PROVIDER_TREES, RUNS, Resource
from gkm.topology.eligibility import NodeDemand
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.pods import NodeLoad
from gkm.topology.provider_trees import pack
from gkm_cli.clusters import connection, reads
from gkm_cli.clusters.connection import ClusterConnection
from gkm_cli.clusters.reads import Unreadable
from gkm_cli.clusters.usage import PODS, RunName
from gkm_cli.output import CommandFailed
from gkm_cli.plan import live
from msgspec import structs
from support.cli.plan_files import FLAVOR, Json, PlanWorkspace, node, pod, racks, run, run_plan
from support.kube.fake_api import FakeApi

SOON = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
LONG_AGO = "2020-01-01T00:00:00Z"


@pytest.fixture
def api() -> FakeApi:
    """Two racks of four nodes with eight GPUs."""
    made = FakeApi()
    for each in racks(2):
        add(made, NODES, each)
    return made


def add(api: FakeApi, resource: Resource[Any], item: Json) -> None:
    """Create an object with its status, which a create leaves out, as on a real API server."""
    api.create(resource, item)
    meta, status = item["metadata"], {"status": item.get("status", {})}
    api.merge(resource, meta["name"], status, meta.get("namespace"), subresource="status")


def labeled(item: Json, name: str) -> Json:
    found = copy.deepcopy(item)
    found["metadata"]["labels"] = {RUN_LABEL: name}
    return found


def test_more_nodes_than_can_be_read_are_given_by_a_list(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next step was to name a namespace with -n, which neither gkm plan nor gkm topology has."""
    monkeypatch.setattr(reads, "MAX_OBJECTS", 7)
    with pytest.raises(CommandFailed, match="there are more than 7 nodes; give a list with --nodes"):
        free(api)


def free(api: FakeApi, own: Collection[RunName] = ()) -> dict[str, int]:
    """Return the free GPUs of each node of rack0."""
    snapshot = live.read(ClusterConnection(api, "ml"), own, Topology())
    return {each.name[-1]: each.free for each in snapshot.usable(NodeDemand(FLAVOR)).nodes if "-0-" in each.name}


def a_plan(directory: Path, expires: str | None = SOON, number: int = 1) -> Json:
    """Return the plan of ml/llama, 32 GPUs: the four nodes of rack0."""
    code, spec = PlanWorkspace(directory).plan()
    assert code == 0
    fields = ("hash", "inventoryVersion", "policy", "flavor", "gpus", "request", "groups", "metrics")
    known = {key: spec[key] for key in fields} | {"run": "llama", "number": number}
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "PlacementPlan",
        "metadata": {"name": f"llama-{number}", "namespace": "ml"},
        "spec": known | ({"expiresAt": expires} if expires else {}),
    }


ALL = {"0": 8, "1": 8, "2": 8, "3": 8}
NONE = dict.fromkeys(ALL, 0)


def test_pods_that_run_take_gpus_and_others_do_not(api: FakeApi) -> None:
    ended = pod("done", "gpu-0-1", 8)
    ended["status"]["phase"] = "Succeeded"
    waits = pod("waits", "", 8)
    for each in (pod("a", "gpu-0-0", 3), ended, waits):
        add(api, PODS, each)
    assert free(api) == ALL | {"0": 5}


@pytest.mark.parametrize(
    ("expires", "expected"), [(SOON, NONE), (None, NONE), (LONG_AGO, ALL)], ids=["live", "endless", "expired"]
)
def test_a_plan_holds_its_gpus_until_it_expires(
    api: FakeApi, tmp_path: Path, expires: str | None, expected: dict[str, int]
) -> None:
    add(api, PLACEMENTPLANS, a_plan(tmp_path, expires))
    assert free(api) == expected


def test_a_plan_and_its_pods_count_once(api: FakeApi, tmp_path: Path) -> None:
    add(api, PLACEMENTPLANS, a_plan(tmp_path))
    add(api, PODS, labeled(pod("p", "gpu-0-0", 8), "llama"))
    assert free(api) == NONE
    assert free(api, {RunName("ml", "llama")}) == ALL


def test_what_a_run_of_another_name_has_is_not_free(api: FakeApi, tmp_path: Path) -> None:
    add(api, PLACEMENTPLANS, a_plan(tmp_path))
    assert free(api, {RunName("other", "llama"), RunName("ml", "other")}) == NONE


def test_only_the_newest_plan_of_a_run_counts(api: FakeApi, tmp_path: Path) -> None:
    add(api, PLACEMENTPLANS, a_plan(tmp_path))
    add(api, PLACEMENTPLANS, a_plan(tmp_path, LONG_AGO, number=2))
    assert free(api) == ALL


@pytest.mark.parametrize(
    ("requests", "load"),
    [({"cpu": "3", "memory": "1Gi"}, NodeLoad(3000, 1000 << 30, 1)), ({}, NodeLoad(0, 0, 1))],
)
def test_pods_of_a_plan_that_have_not_started_count_with_their_requests(
    api: FakeApi, tmp_path: Path, requests: Json, load: NodeLoad
) -> None:
    add(api, PLACEMENTPLANS, a_plan(tmp_path))
    add(api, RUNS.of(dict), run(requests=requests))
    add(api, PODS, labeled(pod("p", "gpu-0-0", 8), "llama"))
    loads = live.read(ClusterConnection(api, "ml"), (), Topology()).usage.loads
    assert loads == {"gpu-0-0": NodeLoad(0, 0, 1), **{f"gpu-0-{number}": load for number in (1, 2, 3)}}


def test_a_plan_whose_run_cannot_be_read_holds_its_gpus(api: FakeApi, tmp_path: Path) -> None:
    add(api, PLACEMENTPLANS, a_plan(tmp_path))
    add(api, RUNS.of(dict), run(gpus="many"))
    assert free(api) == NONE


def test_without_the_kinds_of_gkm_there_are_no_plans(api: FakeApi) -> None:
    api.served = {("v1", "nodes"), ("v1", "pods")}
    assert free(api) == ALL


def test_a_missing_right_is_named(api: FakeApi) -> None:
    def refuse(_verb: str, plural: str) -> ApiError | None:
        return ApiError(403, "Forbidden", "no") if plural == "pods" else None

    api.fault = refuse
    with pytest.raises(Unreadable, match="missing right: list pods in all namespaces"):
        free(api)


def test_a_pod_that_cannot_be_read_stops_the_plan_since_its_gpus_would_seem_free(api: FakeApi) -> None:
    wrong = pod("wrong", "gpu-0-0", 8)
    wrong["spec"]["containers"] = "none"
    add(api, PODS.of(dict), wrong)
    with pytest.raises(CommandFailed, match="pod ml/wrong cannot be read"):
        free(api)


def test_a_node_that_cannot_be_read_and_an_impossible_request_are_quarantined(api: FakeApi) -> None:
    wrong = node("wrong", "rack0", "b0")
    wrong["metadata"]["labels"]["fabric.domain"] = "x" * 400
    add(api, NODES, wrong)
    odd = pod("odd", "gpu-0-3", 8)
    odd["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1.5"
    add(api, PODS.of(dict), odd)
    snapshot = live.read(ClusterConnection(api, "ml"), (), Topology())
    usable = snapshot.usable(NodeDemand(FLAVOR))
    assert [(entry.node, entry.why.value) for entry in usable.quarantined] == [
        ("gpu-0-3", "PodInvalid"),
        ("wrong", "Unreadable"),
    ]


def test_too_many_pods_end_the_reading(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gkm_cli.clusters.usage.MAX_PODS", 2)
    for number in range(3):
        add(api, PODS, pod(f"p{number}", "gpu-0-0", 1))
    with pytest.raises(Unreadable, match="more than 2 pods; give lists with --nodes and --pods"):
        free(api)


def test_without_nodes_and_without_a_cluster_there_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(str(run()).replace("'", '"'))
    done = run_plan("--run", file, "--kubeconfig", tmp_path / "none")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("error: the kubeconfig cannot be used: ")
    assert done.stderr.endswith("; or give lists with --nodes and --pods\n")


def test_lists_and_a_cluster_exclude_each_other_as_in_gkm_topology(tmp_path: Path) -> None:
    done = PlanWorkspace(tmp_path).run_plan("--context", "production")
    assert done.returncode == 2, "the named cluster was not read, and no word said so"
    assert done.stderr.startswith("error: --nodes is given with --kubeconfig or --context; ")


PROVIDERS = Topology(
    hyper_nodes=HyperNodes(enabled=True), providers=[TopologyProvider("labels"), TopologyProvider("ufm")]
)
"""By labels, gpu-1-0 and gpu-1-1 are in rack1; ufm measures them in rack0, and measured data come first."""


def provider_tree(name: str, tree: str, revision: int = 1) -> Json:
    return {"metadata": {"name": name}, "spec": {"state": "Serving", "revision": revision, "tree": tree}}


def a_tree() -> str:
    racks = {"rack0": [f"gpu-0-{at}" for at in range(4)] + ["gpu-1-0", "gpu-1-1"], "rack1": ["gpu-1-2", "gpu-1-3"]}
    return pack(HyperNode(name, "nvlink", tuple(Member("Node", node) for node in on)) for name, on in racks.items())


def domains(api: FakeApi, settings: Topology) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the domain of each node by `gkm plan`, and its notes."""
    snapshot = live.read(ClusterConnection(api, "ml"), (), settings)
    return {each.node.name: each.location.domain for each in snapshot.survey.located}, snapshot.notes


def test_nodes_are_where_the_tree_of_a_provider_says_as_for_the_controllers(api: FakeApi) -> None:
    api.create(PROVIDER_TREES, provider_tree("ufm", a_tree()))
    found, notes = domains(api, PROVIDERS)
    assert {name for name, domain in found.items() if domain == "rack0"} == {
        *(f"gpu-0-{at}" for at in range(4)),
        "gpu-1-0",
        "gpu-1-1",
    }, "nodes are where labels say, and the controllers place them by the tree"
    assert notes == ()


@pytest.mark.parametrize(
    "settings",
    [Topology(), structs.replace(PROVIDERS, hyper_nodes=HyperNodes()), structs.replace(PROVIDERS, providers=[])],
    ids=["no provider", "no tree is made", "no provider at all"],
)
def test_where_the_controllers_plan_by_labels_so_does_the_command(api: FakeApi, settings: Topology) -> None:
    api.create(PROVIDER_TREES, provider_tree("ufm", a_tree()))
    found, notes = domains(api, settings)
    assert (found["gpu-1-0"], notes) == ("rack1", ())


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (None, "it has written no tree, and the controllers wait for the first"),
        ({"spec": {"state": "Starting"}}, "it has written no tree, and the controllers wait for the first"),
        ({"spec": {"revision": 7, "tree": "x"}}, "its revision 7 cannot be used (the packed tree is not compressed"),
        ({"spec": {"revision": "many"}}, "its ProviderTree cannot be read"),
    ],
    ids=["none", "empty", "forged", "damaged"],
)
def test_a_provider_without_a_usable_tree_is_named(api: FakeApi, tree: Json | None, why: str) -> None:
    if tree is not None:
        api.create(PROVIDER_TREES.of(dict), {"metadata": {"name": "ufm"}, **tree})
    found, (note,) = domains(api, PROVIDERS)
    assert note.startswith(f"the topology of ufm is not used here: {why}")
    assert found["gpu-1-0"] == "rack1"


def test_a_missing_right_to_read_the_trees_is_named(api: FakeApi) -> None:
    api.create(PROVIDER_TREES, provider_tree("ufm", a_tree()))
    api.fault = lambda _verb, plural: ApiError(403, "Forbidden", "no") if plural == "providertrees" else None
    found, (note,) = domains(api, PROVIDERS)
    assert note.startswith("the topology of ufm is not used here: missing right: list providertrees.gkm.io; ask")
    assert found["gpu-1-0"] == "rack1"


def test_more_trees_than_can_be_read_have_a_next_step_of_the_command(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MAX_OBJECTS", 8)
    for number in range(9):
        api.create(PROVIDER_TREES, provider_tree(f"old-{number}", a_tree()))
    _, (note,) = domains(api, PROVIDERS)
    assert note.endswith("more than 8 providertrees; delete those that no provider writes"), "gkm plan has no -n"


def configured(api: FakeApi, text: str) -> None:
    metadata = {"name": "gkm-config", "namespace": "gkm-system"}
    api.create(CONFIGMAPS, {"metadata": metadata, "data": {"config.yaml": text}})


def planned(api: FakeApi, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Json:
    monkeypatch.setattr(connection, "connected", lambda *_: ClusterConnection(api, "ml"))
    done = run_plan("--total-gpus", 48, "--group", 48, *arguments, "-o", "json")
    assert done.stdout, done.stderr
    found: Json = json.loads(done.stdout)
    return found


CONFIG = """
topology: {hyperNodes: {enabled: true}, providers: [{name: labels}, {name: ufm}]}
packing: {policy: least-waste}
"""


def test_the_configuration_is_that_of_the_controllers(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configured(api, CONFIG)
    api.create(PROVIDER_TREES, provider_tree("ufm", a_tree()))
    found = planned(api, monkeypatch)
    assert (found["policy"], [group["domain"] for group in found["groups"]]) == ("least-waste", ["rack0"]), (
        "the plan has another configuration than the controllers' (gkm-config)"
    )
    wanted = PlanWorkspace(tmp_path).run
    done = run_plan("--run", wanted, "-o", "json")
    assert json.loads(done.stdout)["policy"] == "least-waste", "a run from a file has another default than the Run"
    file = tmp_path / "config.yaml"
    file.write_text("topology: {hyperNodes: {enabled: true}}")
    found = planned(api, monkeypatch, "--config", file)
    assert found.get("reason") == "DoesNotFit", "--config comes before gkm-config, and by labels no rack has 48 GPUs"


@pytest.mark.parametrize("broken", ["forbidden", "invalid"])
def test_a_configuration_that_cannot_be_read_is_named(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    if broken == "invalid":
        configured(api, "packing: {policy: best}")
    else:
        api.fault = lambda _verb, plural: ApiError(403, "Forbidden", "no") if plural == "configmaps" else None
    note, *_ = planned(api, monkeypatch)["notes"]
    why = (
        "missing right: get configmaps/gkm-config"
        if broken == "forbidden"
        else "configuration: Invalid enum value 'best'"
    )
    assert note.startswith(f"the settings are not those of ConfigMap gkm-system/gkm-config: {why}")
