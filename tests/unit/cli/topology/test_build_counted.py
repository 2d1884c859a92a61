"""`gkm topology build` with a network for storage beside the one for computing: settings say which cables count."""

import json
from pathlib import Path

import pytest
from support.topology.clusters import labeled, topology, written
from support.topology.infiniband_networks import Cabling, topology_file

COMPUTE, STORAGE, SPINE = ("2c5e01000000000a", "2c5e01000000000b"), "2c5e010000000001", "2c5e020000000000"
HOSTS = [f"node-{name}" for name in "abcdef"]


@pytest.fixture
def sources(tmp_path: Path) -> tuple[object, ...]:
    """Return the options for six nodes, each with an adapter at one of two leaves, and one at the storage switch."""
    made = Cabling({COMPUTE[0]: "leaf-1", COMPUTE[1]: "leaf-2", STORAGE: "switch-storage1", SPINE: "spine-1"})
    made.links = [(leaf, SPINE) for leaf in (*COMPUTE, STORAGE)]
    for number, host in enumerate(HOSTS):
        for adapter, switch in (("mlx5_0", COMPUTE[number // 3]), ("mlx5_9", STORAGE)):
            guid = f"e09d{number:06x}{adapter[-1]:0>6}"
            made.descriptions[guid] = f"{host} {adapter}"
            made.plugged.append((guid, switch))
    survey = tmp_path / "survey"
    survey.write_bytes(topology_file(made))
    return "--nodes", written(tmp_path / "nodes.json", *map(labeled, HOSTS)), "--ibnetdiscover", survey


def test_the_message_names_the_setting(sources: tuple[object, ...]) -> None:
    shown = topology("build", *sources).stdout
    assert "EqualCables: node-a, node-b, node-c, node-d, node-e, node-f: " in shown
    assert "name the adapters or switches to use in the config of the provider (topology.providers)" in shown


@pytest.mark.parametrize(
    "config",
    [
        {"adapters": ["mlx5_0"]},
        {"adapters": ["!mlx5_9"]},
        {"switches": ["leaf*", "spine*"]},
        {"switches": ["!*storage*"]},
        {"switches": [f"!{STORAGE}"]},
    ],
)
def test_adapters_or_switches_that_count_give_the_leaves_of_the_network(
    sources: tuple[object, ...], tmp_path: Path, config: object
) -> None:
    file = tmp_path / "config.yaml"
    levels = [{"name": name} for name in ("nvlink", "leaf", "spine")]
    providers = [{"name": "infiniband", "config": config}, {"name": "labels"}]
    file.write_text(json.dumps({"topology": {"levels": levels, "providers": providers}}))
    found = json.loads(topology("build", *sources, "--config", file, "-o", "json").stdout)
    leaves = [each["nodes"] for each in found["domains"] if each["level"] == "leaf"]
    assert (leaves, found["quarantined"], found["notes"]) == ([HOSTS[:3], HOSTS[3:]], [], [])


def test_globs_that_match_no_cable_are_told(sources: tuple[object, ...], tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text('{"topology": {"providers": [{"name": "infiniband", "config": {"adapters": ["ens*"]}}]}}')
    found = json.loads(topology("build", *sources, "--config", file, "-o", "json").stdout)
    expected = "infiniband: no adapters or switches in it match the globs that its config names, so no cable is used"
    assert expected in found["notes"]
