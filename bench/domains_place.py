"""A control plane with the kinds of Grove and NVIDIA, GKM's controllers and admission, and an audit log of both.

NVIDIA's own controller does not run: it reconciles ten times a second at most. domains_templates plays its part.
The kube-controller-manager runs: its garbage collector is what removes the children of deleted sets.
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
from support.domains.gkm import Gkm
from support.grove import kinds

NAMESPACES = tuple(f"team-{number}" for number in range(10))


@dataclass(frozen=True)
class DomainsPlace:
    """The cluster and GKM in it; `api` is the administrator's."""

    cluster: Cluster
    audit: Audit
    gkm: Gkm
    api: HttpApi


@contextmanager
def start(directory: Path) -> Iterator[DomainsPlace]:
    """Start it, with both processes of GKM running."""
    with ExitStack() as stack:
        cluster, audit = stack.enter_context(audited_cluster(directory))
        for definition in kinds.ALL:
            cluster.apply(definition)
        cluster.apply([namespace(name) for name in NAMESPACES])
        names = [definition["metadata"]["name"] for definition in kinds.ALL]
        cluster.until(lambda: all(_is_served(cluster, name) for name in names), "the kinds of Grove and NVIDIA")
        gkm = stack.enter_context(Gkm.installed(cluster, directory / "gkm"))
        gkm.controllers()
        gkm.admission()
        yield DomainsPlace(cluster, audit, gkm, client.connect(str(cluster.kubeconfig)))


def _is_served(cluster: Cluster, definition: str) -> bool:
    conditions = cluster.get("customresourcedefinition", definition).get("status", {}).get("conditions") or ()
    return ("Established", "True") in [(one["type"], one["status"]) for one in conditions]
