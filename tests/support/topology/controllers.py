"""The controllers of GKM beside a cluster, for a topology, with their own account and the rights that ship."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.cluster.cluster import Cluster
from support.cluster.rights import until_rights_hold
from support.host import listening, pages
from support.host.processes import Process
from support.kube import our_kinds
from support.operator.accounts import NOT_RUN_HERE
from support.operator.deployment import MAIN, component, manifests

Json = dict[str, Any]
SYSTEM = "gkm-system"
LOG = "controllers.log"
HURRIED = ("-P", str(Path(__file__).with_name("hurried_controllers.py")))
ACCOUNT = f"system:serviceaccount:{SYSTEM}:gkm-controllers"


@contextmanager
def controllers(cluster: Cluster, directory: Path, topology: Json) -> Iterator[Process]:
    """Install GKM, and run them with this section `topology` of the configuration until the block ends."""
    process = Process.start("gkm-controllers", installed(cluster, directory, topology), directory / LOG)
    try:
        address = listening.address(process)
        process.ready(lambda: pages.has_succeeded(address, "topology"), "it knows the nodes")
        yield process
    finally:
        process.stop()


def installed(cluster: Cluster, directory: Path, topology: Json, main: tuple[str, ...] = MAIN) -> list[str]:
    """Install GKM; return the command of the controllers with this section `topology` of the configuration."""
    directory.mkdir(parents=True, exist_ok=True)
    our_kinds.install(cluster)
    documents = [*manifests(), *component("topology"), *component("topology-labels")]
    found = [document for document in documents if document["kind"] not in NOT_RUN_HERE]
    cluster.apply(sorted(found, key=lambda document: str(document["kind"]) != "Namespace"))
    until_rights_hold(cluster)
    config = directory / "config.json"
    config.write_text(json.dumps({"topology": topology}))
    words = (
        f"--config={config}",
        f"--kubeconfig={cluster.kubeconfig_for(ACCOUNT)}",
        "--health=127.0.0.1:0",
    )
    return [sys.executable, *main, "controllers", *words]
