"""Installs Grove's kinds in a cluster."""

from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from support.cluster.cluster import Cluster
from support.grove import kinds
from support.grove.driver import CLIQUES, GROUPS, SETS


def install_kinds(cluster: Cluster) -> None:
    """Apply the definitions of Grove's kinds, and wait until objects of them can be listed. Idempotent."""
    cluster.apply(kinds.GROVE)
    api = connect(str(cluster.kubeconfig))

    def served() -> bool:
        try:
            return all(next(iter(api.list_pages(kind, limit=1))) for kind in (SETS, GROUPS, CLIQUES))
        except ApiError:  # 404, then 429: the storage is being initialized
            return False

    cluster.until(served, "Grove's kinds to be served")
