"""`gkm topology check` and labels of clouds: families that no level reads, presets that read them, and empty levels."""

import json
from pathlib import Path

import pytest
from gkm.api.topology_presets import HAS_PRESET
from support.topology.clusters import labeled, topology, written

CLOUDS = {
    "eks": {f"topology.k8s.aws/network-node-layer-{layer}": f"nn-{layer}" for layer in (1, 2, 3)},
    "gke": {"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "s"},
    "oke": {"oci.oraclecloud.com/host.network_block_id": "b", "oci.oraclecloud.com/host.rack_id": "r"},
    "coreweave": {"backend.coreweave.cloud/leafgroup": "l", "ib.coreweave.cloud/superpod": "p"},
    "topograph": {"fabric.topograph.run/tier-0": "t0", "fabric.topograph.run/tier-1": "t1"},
    "crusoe": {"crusoe.ai/ib.partition.id": "p"},
}


def findings(directory: Path, labels: dict[str, str], section: object = None) -> dict[str, str]:
    """Return the message of each reason."""
    nodes = [labeled(f"n{at}") for at in range(2)]
    for each in nodes:
        each["metadata"]["labels"] |= labels
    config = directory / "config.yaml"
    config.write_text(json.dumps({"topology": section or {}}))
    listed = written(directory / "nodes.json", *nodes)
    done = topology("check", "--nodes", listed, "--config", config, "-o", "json")
    assert done.returncode == 0, done.stdout
    return {each["reason"]: each["message"] for each in json.loads(done.stdout)["findings"]}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_known_family_that_no_level_reads_is_named_with_what_to_do(tmp_path: Path, cloud: str) -> None:
    message = findings(tmp_path, CLOUDS[cloud])["LabelsUnread"]
    assert message.startswith(f"labels of {cloud} say where these nodes are, and no level reads them (")
    assert all(key in message for key in CLOUDS[cloud])
    expected = f"add {cloud} to topology.presets" if cloud in HAS_PRESET else "name their keys in topology.levels"
    assert message.endswith(expected)


@pytest.mark.parametrize("cloud", sorted(HAS_PRESET))
def test_its_preset_reads_it(tmp_path: Path, cloud: str) -> None:
    assert findings(tmp_path, CLOUDS[cloud], {"presets": [cloud]}) == {}
    levels = [{"name": "leaf", "keys": [next(iter(CLOUDS[cloud]))]}]
    assert findings(tmp_path, CLOUDS[cloud], {"levels": levels}) == {}


def test_a_level_whose_keys_no_node_has_is_named(tmp_path: Path) -> None:
    levels = [{"name": "leaf", "keys": ["example.com/leaf"]}, {"name": "spine"}, {"name": "region"}]
    found = findings(tmp_path, {}, {"levels": levels})
    assert found["LevelWithoutLabels"] == "no node has a label of the level spine (it has no keys): it is empty"
    found = findings(tmp_path, {}, {"levels": levels[:1]})
    assert found["LevelWithoutLabels"] == "no node has a label of the level leaf (example.com/leaf): it is empty"


def test_a_preset_whose_labels_no_node_has_is_named(tmp_path: Path) -> None:
    found = findings(tmp_path, {}, {"presets": ["gke"]})
    assert "the level spine (cloud.google.com/gce-topology-block)" in found["LevelWithoutLabels"]


def test_nodes_whose_gpus_are_not_counted_are_named(tmp_path: Path) -> None:
    dra = labeled("dra")
    dra["status"]["allocatable"] = {}
    done = topology("check", "--nodes", written(tmp_path / "nodes.json", dra))
    assert done.returncode == 0
    assert "warning: GPUsNotCounted: these nodes have a GPU flavor and no allocatable nvidia.com/gpu: " in done.stdout


def test_the_default_levels_may_be_empty(tmp_path: Path) -> None:
    assert findings(tmp_path, {}) == {}


def test_a_placeholder_of_topograph_is_a_problem_for_other_schedulers(tmp_path: Path) -> None:
    listed = written(tmp_path / "nodes.json", labeled("n", **{"fabric__topograph__run/tier-0": "no-topology"}))
    config = tmp_path / "config.yaml"
    config.write_text("topology: {presets: [topograph]}")
    done = topology("check", "--nodes", listed, "--config", config)
    assert done.returncode == 3
    assert "problem: Placeholder: label fabric.topograph.run/tier-0 is no-topology" in done.stdout
