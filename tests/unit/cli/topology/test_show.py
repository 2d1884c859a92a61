"""`gkm topology show`: what is free in each domain, as a table, JSON and a picture."""

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.topology.clusters import SURVEY, hosts, labeled, surveyed_cluster, topology, written
from support.topology.kube_lists import Json

ROOT = Path(__file__).resolve().parents[4]
PICTURE = ROOT / "docs" / "images" / "topology-40-switches.svg"
SVG = "{http://www.w3.org/2000/svg}"
TAINT = {"key": "node.kubernetes.io/maintenance", "effect": "NoSchedule"}


def pod(on: str, gpus: int) -> Json:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    meta = {"name": f"on-{on}", "namespace": "ml"}
    spec = {"nodeName": on, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running"}}


def parsed(picture: str) -> ET.Element:
    return ET.fromstring(picture)  # noqa: S314 -- our own output, without entities


def shown(*arguments: object) -> Json:
    done = topology("show", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: Json = json.loads(done.stdout)
    return found


@settings(max_examples=examples(40))
@given(
    taken=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=6),
    unusable=st.sets(st.integers(0, 3)),
)
def test_sums_of_each_domain_are_those_of_its_nodes(
    tmp_path_factory: pytest.TempPathFactory, taken: list[tuple[int, int]], unusable: set[int]
) -> None:
    directory = tmp_path_factory.mktemp("show")
    items = [labeled(f"n{at}", gpus=4, block=f"b{at // 2}") for at in range(4)]
    for at in unusable:
        items[at]["spec"] = {"unschedulable": True} if at % 2 else {"taints": [TAINT]}
    used = Counter[int]()
    for at, gpus in taken:
        used[at] = max(used[at], gpus)
    nodes = written(directory / "nodes.json", *items)
    pods = written(directory / "pods.json", *(pod(f"n{at}", gpus) for at, gpus in used.items()))
    result = shown("--nodes", nodes, "--pods", pods)
    free = [0 if at in unusable else 4 - used[at] for at in range(4)]
    blocks = {each["name"]: each for each in result["domains"] if each["level"] == "block"}
    for block in range(2):
        inside = range(2 * block, 2 * block + 2)
        assert blocks[f"b{block}"]["freeGPUs"] == sum(free[at] for at in inside)
        assert blocks[f"b{block}"]["freeNodes"] == sum(free[at] == 4 for at in inside)
        assert blocks[f"b{block}"]["unusableNodes"] == sum(at in unusable for at in inside)
    assert (result["gpus"], result["freeGPUs"]) == (16, sum(free))


def test_why_nodes_are_not_usable_is_counted(tmp_path: Path) -> None:
    items = [labeled(f"n{at}", block="b") for at in range(6)]
    items[0]["spec"] = {"unschedulable": True}
    items[1]["status"]["conditions"] = []
    items[2]["metadata"]["labels"]["gkm.io/fabric-health"] = "unhealthy"
    items[3]["spec"] = {"taints": [TAINT]}
    items[4]["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    items[5]["status"]["allocatable"]["nvidia.com/gpu"] = "many"
    lines = topology("show", "--nodes", written(tmp_path / "nodes.json", *items)).stdout.splitlines()
    reasons = {line.rpartition(" ")[2] for line in lines if line.startswith("not usable: 1 node is ")}
    assert reasons == {"Cordoned", "NotReady", "FabricUnhealthy", "Tainted", "NoGPUs", "Unknown"}
    assert "0 of 32 GPUs are free" in lines


def test_gpus_that_dra_hands_out_are_named_and_not_counted(tmp_path: Path) -> None:
    dra = labeled("dra", block="b")
    dra["status"]["allocatable"] = {}
    nodes = written(tmp_path / "nodes.json", labeled("plugin", block="b"), dra)
    claims = pod("plugin", 0)
    claims["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "mine"}]
    result = shown("--nodes", nodes, "--pods", written(tmp_path / "pods.json", claims))
    assert [note.partition(",")[0] for note in result["notes"]] == [
        "1 node has a GPU flavor and no allocatable nvidia.com/gpu",
        "1 pod holds ResourceClaims and no nvidia.com/gpu",
    ]


def test_a_pod_that_cannot_be_counted_makes_its_node_unknown(tmp_path: Path) -> None:
    nodes = written(tmp_path / "nodes.json", labeled("n0"))
    wrong = pod("n0", 1)
    wrong["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1.5"
    result = shown("--nodes", nodes, "--pods", written(tmp_path / "pods.json", wrong, pod("elsewhere", 2)))
    assert (result["freeGPUs"], result["unusableNodes"]) == (0, 1)
    assert result["notes"] == ["pods take 2 GPUs of 1 node that --nodes does not list, such as elsewhere"]


def test_the_table_has_each_level_and_the_nodes_outside_of_it(tmp_path: Path) -> None:
    nodes, pods = surveyed_cluster(tmp_path)
    lines = topology("show", "--nodes", nodes, "--pods", pods, "--ibnetdiscover", SURVEY).stdout.splitlines()
    assert next(line for line in lines if line.startswith("leaf ")).split()[:2] == ["leaf", "8"]
    assert next(line for line in lines if line.startswith("leaf ")).split()[-1] == "25"
    assert sum("- leaf " in line for line in lines) == 8


def test_no_level_closer_than_the_given_one_is_shown(tmp_path: Path) -> None:
    nodes, _ = surveyed_cluster(tmp_path)
    done = topology("show", "--nodes", nodes, "--ibnetdiscover", SURVEY, "--level", "spine")
    assert ("- leaf" in done.stdout, "- spine" in done.stdout) == (False, True)
    done = topology("show", "--nodes", nodes, "--level", "rack")
    assert (done.returncode, done.stderr) == (
        2,
        "error: --level 'rack' is no level of the topology; the levels are nvlink, block, cluster, region\n",
    )


def test_json_has_no_level_closer_than_the_given_one_and_each_node_once(tmp_path: Path) -> None:
    nodes, _ = surveyed_cluster(tmp_path)
    whole = shown("--nodes", nodes, "--ibnetdiscover", SURVEY)
    cut = shown("--nodes", nodes, "--ibnetdiscover", SURVEY, "--level", "spine")
    wider = [each for each in whole["domains"] if each["level"] not in {"leaf", "nvlink"}]
    assert [each["name"] for each in cut["domains"]] == [each["name"] for each in wider]
    (spine,) = [each for each in cut["domains"] if each["level"] == "spine"]
    assert len(spine["nodes"]) == spine["nodeCount"] == 119
    listed = [node for each in cut["domains"] for node in each["nodes"]] + cut["nodesInNone"]
    assert len(listed) == len(set(listed)) == cut["nodeCount"]


def test_the_picture_has_a_square_for_each_node(tmp_path: Path) -> None:
    nodes, pods = surveyed_cluster(tmp_path)
    done = topology("show", "--nodes", nodes, "--pods", pods, "--ibnetdiscover", SURVEY, "-o", "svg")
    titles = [title.text or "" for title in parsed(done.stdout).iterfind(f"{SVG}rect/{SVG}title")]
    assert sorted(title.partition(":")[0] for title in titles) == hosts()
    assert sum(title.endswith(": Cordoned") for title in titles) == 8


def test_boxes_of_the_picture_lie_within_it_and_overlap_only_those_they_are_in(tmp_path: Path) -> None:
    # Domains of 1 to 40 nodes, so that boxes of one row differ in height.
    items = [
        labeled(f"n{size}-{at}", block=f"b{size % 4}", fabric__domain=f"d{size}")
        for size in (40, 1, 3, 2, 30, 4, 6, 5, 20, 8, 11, 10)
        for at in range(size)
    ]
    done = topology("show", "--nodes", written(tmp_path / "nodes.json", *items), "-o", "svg")
    root = parsed(done.stdout)
    boxes = [
        tuple(float(each.attrib[key]) for key in ("x", "y", "width", "height")) for each in root.iter(f"{SVG}rect")
    ]
    drawn = [(x, y, x + width, y + height) for x, y, width, height in boxes]
    assert all(right <= float(root.attrib["width"]) for _, _, right, _ in drawn)
    assert all(bottom <= float(root.attrib["height"]) for _, _, _, bottom in drawn)
    for at, (left, top, right, bottom) in enumerate(drawn):
        for other_left, other_top, other_right, other_bottom in drawn[:at]:
            apart = left >= other_right or other_left >= right or top >= other_bottom or other_top >= bottom
            within = left >= other_left and right <= other_right and top >= other_top and bottom <= other_bottom
            assert apart or within


def test_text_of_a_switch_cannot_leave_its_element(tmp_path: Path) -> None:
    survey = SURVEY.read_bytes().replace(b"MF0;A09-P1-IBLEAF-02-01:MQM9701/U1", b"</text><script>\x1b[2J&lt;")
    file = tmp_path / "survey.out"
    file.write_bytes(survey)
    nodes, _ = surveyed_cluster(tmp_path)
    done = topology("show", "--nodes", nodes, "--ibnetdiscover", file, "-o", "svg")
    root = parsed(done.stdout)
    assert {element.tag for element in root.iter()} == {f"{SVG}{name}" for name in ("svg", "title", "rect", "text")}
    assert any("</text><script>" in (element.text or "") for element in root.iter(f"{SVG}text"))
    assert "\x1b" not in topology("show", "--nodes", nodes, "--ibnetdiscover", file).stdout


def test_the_picture_in_the_documents_is_what_the_command_draws(tmp_path: Path) -> None:
    nodes, pods = surveyed_cluster(tmp_path)
    done = topology("show", "--nodes", nodes, "--pods", pods, "--ibnetdiscover", SURVEY, "-o", "svg")
    assert PICTURE.read_text(encoding="utf-8") == done.stdout
    assert PICTURE.stat().st_size < 100_000
