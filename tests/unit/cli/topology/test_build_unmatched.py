"""`gkm topology build` with files that place no node, are another program's, or end in the middle: each says so."""

import gzip
import json
from pathlib import Path

import pytest
from support.topology.clusters import labeled, topology, written
from support.topology.infiniband_networks import Cabling, topology_file

FACTORY = "MT4129 ConnectX7   Mellanox Technologies"
LEAF, SPINE = "2c5e010000000000", "2c5e020000000000"


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    return written(tmp_path / "nodes.json", *(labeled(f"dgx-{at}") for at in range(4)))


def notes(*arguments: object) -> list[str]:
    """Return the notes but that about levels."""
    done = topology("build", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return [note for note in json.loads(done.stdout)["notes"] if not note.startswith("no --config is given")]


def survey(*descriptions: str) -> bytes:
    """Return a survey of a leaf with adapters that have these descriptions, and of a spine above it."""
    made = Cabling({LEAF: "leaf", SPINE: "spine"}, links=[(LEAF, SPINE)])
    for number, description in enumerate(descriptions):
        made.descriptions[f"e09d{number:012x}"] = description
        made.plugged.append((f"e09d{number:012x}", LEAF))
    return topology_file(made)


def file(directory: Path, content: object) -> Path:
    path = directory / "source"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_adapters_that_name_no_host_place_no_node(nodes: Path, tmp_path: Path) -> None:
    assert notes("--nodes", nodes, "--ibnetdiscover", file(tmp_path, survey(FACTORY, FACTORY))) == [
        "infiniband: it places 0 of 4 nodes: 2 adapters in it name no host"
    ]


def test_hosts_of_another_cluster_are_counted_with_examples(nodes: Path, tmp_path: Path) -> None:
    text = survey("dgx-0 mlx5_0", *(f"other-{at} mlx5_0" for at in range(5)), FACTORY)
    others = "5 hosts in it are no nodes, for example other-0, other-1, other-2; 1 adapter in it names no host"
    assert notes("--nodes", nodes, "--ibnetdiscover", file(tmp_path, text)) == [
        f"infiniband: 1 of 4 nodes are in it; {others}"
    ]


def test_a_source_that_shows_all_nodes_and_no_others_needs_no_word(nodes: Path, tmp_path: Path) -> None:
    text = survey(*(f"dgx-{at} mlx5_0" for at in range(4)))
    assert notes("--nodes", nodes, "--ibnetdiscover", file(tmp_path, text)) == []


def test_a_survey_without_hosts_shows_none(nodes: Path, tmp_path: Path) -> None:
    assert notes("--nodes", nodes, "--ibnetdiscover", file(tmp_path, survey())) == [
        "infiniband: it places 0 of 4 nodes: it shows no host"
    ]


def test_a_survey_that_is_cut_says_what_is_missing(nodes: Path, tmp_path: Path) -> None:
    whole = survey(*(f"dgx-{at} mlx5_0" for at in range(4)))
    cut = whole[: whole.index(b"caguid=0xe09d000000000001") - 40]
    missing = "3 cables lead to devices without an entry; the file is cut, or these did not answer"
    assert notes("--nodes", nodes, "--ibnetdiscover", file(tmp_path, cut)) == [
        f"infiniband: it is not whole: {missing}"
    ]


def test_a_compressed_survey_that_is_cut_is_refused(nodes: Path, tmp_path: Path) -> None:
    packed = gzip.compress(survey(*(f"dgx-{at} mlx5_0" for at in range(4))))
    done = topology("build", "--nodes", nodes, "--ibnetdiscover", file(tmp_path, packed[:-9]))
    assert done.returncode == 2
    assert "the survey is truncated" in done.stderr


ROW = {"description": "Computer IB Port", "system_name": "dgx-0", "guid": "01", "peer_node_guid": LEAF}


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--ufm", [{"system_type": "switch", "ip": "10.0.0.1"}], "no row in it is a port of a Computer or a Switch"),
        (
            "--lldp",
            {"dgx-0": {"lldp": {"interface": [{"eth0": {"ttl": 120}}]}}},
            "no neighbor in the output has a chassis",
        ),
        ("--tree-file", {"items": [], "kind": "List"}, "the file has no `domains`"),
    ],
)
def test_a_file_of_another_schema_is_refused(
    nodes: Path, tmp_path: Path, option: str, content: object, message: str
) -> None:
    done = topology("build", "--nodes", nodes, option, file(tmp_path, content))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("option", "content", "note"),
    [
        ("--ufm", [], "it shows no host"),
        ("--ufm", [ROW | {"system_name": "x-1"}], "1 host in it is no node, for example x-1"),
        ("--lldp", {}, "it shows no host"),
        (
            "--lldp",
            {"x-1": {"lldp": {}}, "x-2": {"lldp": {}}},
            "2 hosts in it are no nodes, for example x-1, x-2",
        ),
        (
            "--tree-file",
            {"domains": [{"name": "a", "level": "rack", "nodes": ["x-[1-9]"]}]},
            "9 hosts in it are no nodes, for example x-1, x-2, x-3",
        ),
    ],
)
def test_nothing_found_is_told_from_nothing_there(
    nodes: Path, tmp_path: Path, option: str, content: object, note: str
) -> None:
    found = notes("--nodes", nodes, option, file(tmp_path, content))
    assert found == [f"{option[2:]}: it places 0 of 4 nodes: {note}"]


def test_node_fabrics_of_other_nodes_are_told(nodes: Path, tmp_path: Path) -> None:
    fabrics = [
        {"kind": "NodeFabric", "metadata": {"name": name}, "spec": {"nodeName": name}, "status": {}}
        for name in ("dgx-0", "other-1", "other-2")
    ]
    assert notes("--nodes", nodes, "--fabrics", written(tmp_path / "fabrics.json", *fabrics)) == [
        "--fabrics: 2 hosts in it are no nodes, for example other-1, other-2"
    ]


def test_pages_of_ufm_that_are_missing_are_told(nodes: Path, tmp_path: Path) -> None:
    switch = {"description": "Switch IB Port", "system_name": "leaf", "guid": "02", "peer_node_guid": "03"}
    found = notes("--nodes", nodes, "--ufm", file(tmp_path, [ROW, switch]))
    assert found == [
        "ufm: it places 0 of 4 nodes: it shows no host",
        "ufm: 1 ports of hosts do not count: their switches have no row, so pages may be missing",
    ]
