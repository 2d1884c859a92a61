"""A control plane with NVIDIA's kind and Volcano's, GKM's controllers and admission, and an audit log of both.

NVIDIA's own controller does not run: its pace would be measured. The kube-controller-manager runs with its garbage
collector, as everywhere.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gkm.kube import client
from gkm.kube.client import HttpApi
from support.cluster.audit import Audit
from support.cluster.audited_cluster import audited_cluster
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.domains.gkm import TASK_GROUPS, Gkm
from support.grove import kinds
from support.operator.domain_cluster import any_kind

NAMESPACES = tuple(f"team-{number}" for number in range(10))
_KINDS = (kinds.COMPUTE_DOMAIN, any_kind("scheduling.volcano.sh", "v1beta1", "PodGroup"))


@dataclass(frozen=True)
class GroupsPlace:
    """The cluster and GKM in it; `api` is the administrator's."""

    cluster: Cluster
    audit: Audit
    gkm: Gkm
    api: HttpApi


@contextmanager
def start(directory: Path) -> Iterator[GroupsPlace]:
    """Start it, with both processes of GKM running."""
    with ExitStack() as stack:
        cluster, audit = stack.enter_context(audited_cluster(directory))
        cluster.apply([*_KINDS, *(namespace(name) for name in NAMESPACES)])
        cluster.until_kinds_established()
        gkm = stack.enter_context(Gkm.installed(cluster, directory / "gkm", TASK_GROUPS))
        gkm.controllers()
        gkm.admission()
        yield GroupsPlace(cluster, audit, gkm, client.connect(str(cluster.kubeconfig)))
