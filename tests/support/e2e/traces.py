"""What GKM has left: objects in the API of a cluster, and names on the disks of its node."""

import json
from collections.abc import Iterable
from pathlib import Path

from support.cluster.cluster import Cluster

OURS = "gkm"


def in_the_api(cluster: Cluster) -> list[str]:
    """Return each object that is ours, or has our labels, annotations or driver, as text.

    Events are left out: they go by themselves, an hour later.
    """
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()
    asked = ",".join(kind for kind in kinds if kind.partition(".")[0] != "events")
    found = json.loads(cluster.kubectl("get", asked, "--all-namespaces", "--output=json"))["items"]
    return [text for each in found if OURS in (text := json.dumps(_own(each)))]


def _own(found: dict[str, object]) -> dict[str, object]:
    """Return an object without what others write about it: the paths and images of the node are the test's."""
    metadata = found["metadata"]
    assert isinstance(metadata, dict)
    ours = {key: metadata.get(key) for key in ("name", "namespace", "labels", "annotations", "finalizers")}
    return {"kind": found["kind"], "metadata": ours, "spec": found.get("spec") if found["kind"] == "CSINode" else None}


def on_disk(directories: Iterable[Path]) -> list[Path]:
    """Return every path below these directories whose name is ours."""
    return [path for directory in directories for path in directory.rglob("*") if OURS in path.name]
