"""The part of `make demo` that plans: a made-up cluster of 10,000 GPUs as kubectl lists it, the real `gkm plan`."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gkm.api.node_names import unfold
from gkm.packing.values import Node
from support.packing.inventories import inventory

from demo.story import Story, expect

Json = dict[str, Any]
GPU, FLAVOR = "nvidia.com/gpu", "NVIDIA-GB200"
NO = 3


def groups_are_placed(story: Story, directory: Path) -> None:
    """Plan a run, ask for more than there is, lose a node, and plan again."""
    directory.mkdir()
    nodes, pods = directory / "nodes.json", directory / "pods.json"
    busy = inventory("nvl72_10k")
    write(nodes, "Node", map(node, busy))
    write(pods, "Pod", (pod(one) for one in busy if one.free < one.total))
    llama, huge = run(directory, "llama", 1024), run(directory, "huge", 8192)
    lists = ("--nodes", nodes, "--pods", pods)
    plan = story.tell(
        "gkm plan: 64 groups of 16 GPUs, each in one NVLink domain, on 10,000 GPUs that others use half of",
        lambda: answered(0, *lists, "--run", llama),
    )
    story.note(f"{plan['metrics']['domains']} domains; no plan takes fewer than {plan['metrics']['lowerBound']}")
    for line in picture(*lists, "--run", llama):
        story.note(line)
    refused = story.tell("512 groups: refused, with what would help", lambda: answered(NO, *lists, "--run", huge))
    because = (refused["reason"], refused["bindingLevel"])
    expect(because == ("DoesNotFit", "capacity"), f"it was refused for another reason: {refused['message']}")
    # The search for fixes ends after seconds: on a slow machine it may have found none, and a note says so.
    story.note([*(fix["message"] for fix in refused["fixes"]), *refused["notes"]][0])
    first = unfold(plan["groups"][0]["nodes"][0]["name"])[0]
    standing = directory / "plan.json"
    standing.write_text(json.dumps(plan))
    write(nodes, "Node", (node(one) for one in busy if one.name != first))
    again = story.tell(
        f"{first} is lost: the plan again, and its spare takes its place",
        lambda: answered(0, *lists, "--run", llama, "--standing", standing, "--standing-waits"),
    )
    moved = again["replanned"]["moved"]
    expect(not moved, f"groups {moved} moved")
    story.note(f"no group moves, {again['replanned']['sparesUsed']} spare is used, the plan's hash is another")


def answered(code: int, *words: object) -> Any:  # noqa: ANN401 -- JSON is what it is
    """Run `gkm plan` and return its JSON."""
    done = gkm(*words, "--output", "json")
    expect(done.returncode == code, done.stderr or done.stdout)
    return json.loads(done.stdout)


def picture(*words: object) -> list[str]:
    """Return the first lines of the table's picture."""
    lines = gkm(*words).stdout.splitlines()
    return lines[2:8]


def gkm(*words: object) -> subprocess.CompletedProcess[str]:
    """Run `gkm plan` to its end."""
    typed = [sys.executable, "-m", "gkm_cli.main", "plan", *map(str, words)]
    return subprocess.run(typed, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603 -- our own words


def write(path: Path, kind: str, items: Iterable[Json]) -> None:
    """Write objects as `kubectl get -o json` prints them."""
    whole = [{"apiVersion": "v1", "kind": kind} | item for item in items]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": whole}))


def node(of: Node) -> Json:
    """Return a Node with the labels of its place."""
    place = of.place
    labels = {"region": place.region, "cluster": place.cluster, "block": place.block, "fabric.domain": place.domain}
    status = {"allocatable": {GPU: str(of.total)}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": of.name, "labels": labels | {"gpu.flavor": FLAVOR}}, "status": status}


def pod(of: Node) -> Json:
    """Return a pod that uses all GPUs of a node that are not free."""
    taken = {"name": "others", "resources": {"limits": {GPU: str(of.total - of.free)}}}
    spec = {"nodeName": of.name, "containers": [taken]}
    return {"metadata": {"name": f"on-{of.name}", "namespace": "others"}, "spec": spec, "status": {"phase": "Running"}}


def run(directory: Path, name: str, gpus: int) -> Path:
    """Write a Run in groups of 16 GPUs; return its file."""
    spec = {"flavor": FLAVOR, "gpus": gpus, "gpusPerPod": 4, "groupGPUs": 16, "spares": 1}
    path = directory / f"{name}.json"
    value = {"apiVersion": "gkm.io/v1alpha1", "kind": "Run", "metadata": {"name": name, "namespace": "ml-apps"}}
    path.write_text(json.dumps(value | {"spec": spec}))
    return path
