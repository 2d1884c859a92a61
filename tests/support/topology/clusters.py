"""Clusters as files for `gkm topology`, and the command in this process."""

import json
import random
import subprocess
from pathlib import Path

from support.cli.command import gkm_in_this_process
from support.topology.kube_lists import READY, Json

DATA = Path(__file__).resolve().parents[2] / "data" / "fabric"
SURVEY = DATA / "ibnetdiscover-40-switches.out"
HOSTNAME = "kubernetes.io/hostname"
HOSTS = {
    "A09-P1-IBLEAF-02-01": "a05-p1-dgx-01",
    "A09-P1-IBLEAF-01-02": "a06-p1-dgx-02",
    "A09-P1-IBLEAF-01-03": "a07-p1-dgx-03",
    "A09-P1-IBLEAF-04-04": "a08-p1-dgx-04",
    "B09-P1-IBLEAF-01-05": "b05-p1-dgx-05",
    "B09-P1-IBLEAF-02-06": "b06-p1-dgx-06",
    "B09-P1-IBLEAF-01-07": "b07-p1-dgx-07",
    "B09-P1-IBLEAF-01-08": "b08-p1-dgx-08",
}
"""The racks of the network in SURVEY: the first words of the names of their 18 hosts, by a switch of each."""


def topology(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `gkm topology` in this process."""
    return gkm_in_this_process("topology", *arguments)


def labeled(name: str, gpus: object = 8, **labels: str) -> Json:
    """Return a node with flavor and hostname; of further labels, a double underscore stands for a dot."""
    named = {key.replace("__", "."): value for key, value in labels.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, "gpu.flavor": "h100"} | named},
        "spec": {},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": READY},
    }


def written(path: Path, *items: Json) -> Path:
    """Write a list as kubectl prints it."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    return path


def hosts() -> list[str]:
    """Return the names of all hosts of the racks, whether or not the survey has them."""
    return [f"{rack}-c{number:02}" for rack in HOSTS.values() for number in range(1, 19)]


def surveyed_cluster(directory: Path, seed: int = 1) -> tuple[Path, Path]:
    """Write nodes for the hosts of SURVEY and pods on half of them, and cordon one of each rack; return the files."""
    order = random.Random(seed)
    nodes = [labeled(name) for name in hosts()]
    for node in nodes[::18]:
        node["spec"] = {"unschedulable": True}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"on-{name}", "namespace": "ml"},
            "spec": {
                "nodeName": name,
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": order.choice("248")}}}],
            },
            "status": {"phase": "Running"},
        }
        for name in order.sample(hosts(), 72)
    ]
    return written(directory / "nodes.json", *nodes), written(directory / "pods.json", *pods)
