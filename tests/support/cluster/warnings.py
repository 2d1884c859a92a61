"""The warnings of a real API server about an object that it would store."""

import json
import subprocess

from gkm.kube.resources import Json
from support.cluster.cluster import Cluster
from support.peers.build import binary


def warned(cluster: Cluster, made: Json) -> str:
    """Return the warnings for a new object in the namespace default, which the API server takes and does not store."""
    metadata = {key: value for key, value in made["metadata"].items() if key in {"name", "labels"}}
    command = [str(binary("kubectl")), f"--kubeconfig={cluster.kubeconfig}", "--namespace=default"]
    done = subprocess.run(
        [*command, "create", "--dry-run=server", "--filename", "-"],
        input=json.dumps(made | {"metadata": metadata}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr
