"""What schedulers that read a topology install on the API server, from their published modules, without processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from support.cluster.cluster import Cluster
from support.cluster.policies import until_policies_hold
from support.peers import module_files

Json = dict[str, Any]
VOLCANO, KAI, KUEUE = "volcano.sh/volcano", "github.com/NVIDIA/KAI-scheduler", "sigs.k8s.io/kueue"
_VOLCANO_DEFINITIONS = Path("config/crd/volcano/bases")
_VOLCANO_POLICIES = Path("installer/volcano-development-vap.yaml")
_KAI_TOPOLOGY = Path("deployments/kai-scheduler/crds/kai.scheduler_topologies.yaml")
_KUEUE_TOPOLOGY = Path("config/components/crd/bases/kueue.x-k8s.io_topologies.yaml")


def install_volcano(cluster: Cluster) -> None:
    """Apply the definitions of Volcano and the admission policies of its objects; wait until they are in force.

    Raises:
        Missing: there is no Go.
    """
    source = module_files.source("volcano", VOLCANO)
    _install(cluster, source / _VOLCANO_DEFINITIONS)
    cluster.apply(list(_policies(source / _VOLCANO_POLICIES)))
    until_policies_hold(cluster)


def install_topologies(cluster: Cluster) -> None:
    """Apply the definitions of the Topology of Kueue and of that of KAI.

    Raises:
        Missing: there is no Go.
    """
    _install(cluster, module_files.source("kueue", KUEUE) / _KUEUE_TOPOLOGY)
    _install(cluster, module_files.source("kai", KAI) / _KAI_TOPOLOGY)


def _install(cluster: Cluster, definitions: Path) -> None:
    cluster.apply(definitions)
    cluster.until_kinds_established()


def _policies(path: Path) -> Iterator[Json]:
    """Yield the policies and their bindings; the rest of the file is Volcano's deployment."""
    for document in yaml.load_all(path.read_text(), yaml.CSafeLoader):
        if document and document["kind"].startswith("ValidatingAdmissionPolicy"):
            yield document
