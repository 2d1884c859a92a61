"""Presets of topology labels: what the tree and the planner read with them."""

import pytest
from gkm.api.topology_presets import FAMILIES, HAS_PRESET, PRESET_LEVELS
from gkm.api.topology_settings import Topology
from gkm.topology.labels import label_placements
from gkm.topology.nodes import Node
from gkm.topology.survey import survey_nodes
from msgspec import convert, to_builtins
from support.topology.kube_lists import node_json

EKS = {f"topology.k8s.aws/network-node-layer-{layer}": f"nn-{layer}" for layer in (1, 2, 3)}


def configured(**section: object) -> Topology:
    return convert(section, Topology)


def node(**labels: str) -> Node:
    return convert(node_json("n", labels=labels), Node)


def place(settings: Topology, labels: dict[str, str]) -> dict[str, str]:
    """Return the domain of each level that a node with these labels has."""
    found = label_placements([node(**labels)], settings).places["n"]
    return {level.name: name for level, name in zip(settings.levels, found, strict=True) if name and name != "default"}


CASES = {
    "eks": (EKS, {"leaf": "nn-3", "spine": "nn-2", "core": "nn-1"}),
    "gke": (
        {"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "s"},
        {"leaf": "s", "spine": "b"},
    ),
    "oke": (
        {"oci.oraclecloud.com/host.network_block_id": "b", "oci.oraclecloud.com/host.rack_id": "r"},
        {"leaf": "r", "spine": "b"},
    ),
    "coreweave": (
        {
            "backend.coreweave.cloud/leafgroup": "l",
            "ib.coreweave.cloud/superpod": "p",
            "ib.coreweave.cloud/fabric": "f",
        },
        {"leaf": "l", "spine": "p", "core": "f"},
    ),
    "topograph": (
        {
            "fabric.topograph.run/tier-0": "t0",
            "fabric.topograph.run/tier-1": "t1",
            "accelerator.topograph.run/domain": "d",
        },
        {"nvlink": "d", "leaf": "t0", "spine": "t1"},
    ),
}


def test_every_preset_has_a_case() -> None:
    assert CASES.keys() == HAS_PRESET <= FAMILIES.keys()


@pytest.mark.parametrize("preset", CASES)
def test_a_preset_reads_the_labels_of_its_cloud(preset: str) -> None:
    labels, expected = CASES[preset]
    settings = configured(presets=[preset])
    assert place(configured(), labels) == {}
    assert place(settings, labels) == expected
    names = [level.name for level in settings.levels]
    assert (names[0], names[-2:]) == ("nvlink", ["cluster", "region"])
    assert names[1:-2] == [level for level in PRESET_LEVELS if level in FAMILIES[preset].levels]


@pytest.mark.parametrize("preset", CASES)
def test_the_block_of_the_planner_is_the_level_spine(preset: str) -> None:
    labels, expected = CASES[preset]
    (located,) = survey_nodes([node(**labels)], configured(presets=[preset])).located
    assert located.location.block == expected["spine"]


def test_clusters_of_several_clouds_have_common_levels() -> None:
    settings = configured(presets=["gke", "eks"])
    assert [level.name for level in settings.levels] == [
        "nvlink",
        "sub-leaf",
        "leaf",
        "spine",
        "core",
        "cluster",
        "region",
    ]
    assert [place(settings, CASES[cloud][0])["leaf"] for cloud in ("eks", "gke")] == ["nn-3", "s"]


def test_configured_levels_stay_and_get_the_keys_of_the_preset() -> None:
    settings = configured(presets=["eks"], levels=[{"name": "leaf"}, {"name": "pod", "keys": ["example.com/pod"]}])
    assert [level.name for level in settings.levels] == ["leaf", "pod"]
    assert place(settings, EKS | {"example.com/pod": "p"}) == {"leaf": "nn-3", "pod": "p"}


def test_configured_keys_count_before_those_of_a_preset() -> None:
    settings = configured(presets=["topograph"], labels={"domain": ["nvidia.com/gpu.clique"]})
    labels = {"nvidia.com/gpu.clique": "measured", "accelerator.topograph.run/domain": "d"}
    assert place(settings, labels) == {"nvlink": "measured"}


def test_a_capacity_block_is_no_nvlink_domain_and_an_ultraserver_is_one() -> None:
    settings = configured(presets=["eks"])
    assert place(settings, {"topology.k8s.aws/capacity-block-id": "cb-1"}) == {}
    assert place(settings, {"topology.k8s.aws/ultraserver-id": "us-1"}) == {"nvlink": "us-1"}


def test_the_placeholder_of_topograph_is_no_domain() -> None:
    assert place(configured(presets=["topograph"]), {"fabric.topograph.run/tier-0": "no-topology"}) == {}


def test_a_configuration_with_presets_means_the_same_when_it_is_written_and_read_again() -> None:
    once = configured(presets=["oke", "topograph"])
    assert convert(to_builtins(once), Topology) == once
