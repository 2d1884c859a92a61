"""Whoever labels a Node with a value that a scheduler would misread gets a warning from a real API server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from gkm.api.cliques import PLACEHOLDERS
from support.chart.deploy_files import rendered
from support.cluster.cluster import Cluster
from support.host.waiting import scaled
from support.peers.build import binary

LABELER = Path(__file__).resolve().parents[3] / "hack" / "labeler.sh"
NODE = "hygiene-0"
ZERO = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module")
def place(gkm_cluster: Cluster) -> Iterator[Cluster]:
    """Return the shared cluster with the policy and a Node, for the tests of this file only."""
    policy = rendered() / "components" / "topology-hygiene" / "policy.yaml"
    gkm_cluster.apply(policy)
    try:
        gkm_cluster.until(lambda: warned(gkm_cluster, block=""), "the policy to be in force")
        gkm_cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"block": "B_1"}}})
        yield gkm_cluster
    finally:
        for found in yaml.load_all(policy.read_text(encoding="utf-8"), yaml.CSafeLoader):
            gkm_cluster.objects.delete(found)
        gkm_cluster.objects.delete_named("node", NODE)


def warned(cluster: Cluster, /, **labels: str) -> str:
    """Return the warnings for a new Node, which the API server accepts without storing it."""
    named = {key.replace("__", "."): value for key, value in labels.items()}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "hygiene-new", "labels": named}}
    return "\n".join(cluster.objects.warnings(node))


def kubectl(cluster: Cluster, *arguments: str) -> str:
    command = [str(binary("kubectl")), f"--kubeconfig={cluster.kubeconfig}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(60), check=True)
    return done.stderr


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"block": ""}, "empty labels of Node hygiene-new: block."),
        ({"fabric__domain": "", "rack": ""}, "empty labels of Node hygiene-new: fabric.domain, rack."),
        ({"rack": "Unknown"}, "that stand for no place: rack."),
        ({"gpu__flavor": "none"}, "that stand for no place: gpu.flavor."),
        ({"fabric__domain": f"{ZERO}.0"}, "that stand for no place: fabric.domain."),
        ({"nvidia__com/gpu__clique": ZERO}, "that stand for no place: nvidia.com/gpu.clique."),
        ({"nvidia__com/gpu__clique": "N.A"}, "that stand for no place: nvidia.com/gpu.clique."),
        ({"nvidia__com/gpu__clique": "0", "rack": "0"}, "that stand for no place: nvidia.com/gpu.clique."),
        ({"cluster": "Prod_1"}, "that cannot be part of the name of a HyperNode: cluster."),
        ({"block": "a..b"}, "that cannot be part of the name of a HyperNode: block."),
    ],
)
def test_a_value_that_is_misread_causes_a_warning_and_no_refusal(
    place: Cluster, labels: dict[str, str], words: str
) -> None:
    assert words in warned(place, **labels)


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_every_placeholder_is_known(place: Cluster, placeholder: str) -> None:
    assert "stand for no place: block" in warned(place, block=placeholder)


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"block": "b-1", "fabric__domain": "0f6d8c1e-6a0e-4a39-8c4e-5f3f2e1d0c9b.32766", "gpu__flavor": "NVIDIA-H100"},
        {"team": "", "example__com": "Unknown"},
    ],
)
def test_other_labels_cause_none(place: Cluster, labels: dict[str, str]) -> None:
    assert warned(place, **labels) == ""


def test_only_a_changed_label_causes_a_warning(place: Cluster) -> None:
    change = ("label", "--overwrite", "--dry-run=server", "node", NODE)
    assert kubectl(place, *change, "team=ml") == ""
    assert "HyperNode: rack" in kubectl(place, *change, "rack=R_1")
    assert "HyperNode: block" in kubectl(place, *change, "block=B_2")
    assert kubectl(place, *change, "block-") == ""


def test_the_labeler_corrects_labels_on_the_server(place: Cluster, tmp_path: Path) -> None:
    wrong = {"block": "", "fabric.domain": "d1", "gpu.flavor": "h100", "kubernetes.io/hostname": NODE, "rack": "none"}
    place.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": wrong}})
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps(place.get("node", NODE)))
    for name, program in (("kubectl", binary("kubectl")), ("gkm", Path(sys.executable).with_name("gkm"))):
        (tmp_path / name).symlink_to(program)
    # Without a home, kubectl writes its cache into the working directory.
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": str(place.kubeconfig)}
    command = [str(LABELER), "--nodes", str(nodes), "--apply"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(240), check=False, env=environment)
    assert done.returncode == 3, done.stderr
    assert f"kubectl label nodes {NODE} block-" in done.stdout
    labels = place.get("node", NODE)["metadata"]["labels"]
    assert labels == {key: wrong[key] for key in ("fabric.domain", "gpu.flavor", "kubernetes.io/hostname")}
