"""The enrolled set `test-pcs`, its first domains, and its PodCliques and scaling groups as Grove makes them."""

from collections.abc import Mapping

from gkm.api.mnnvl_metadata import AUTO_MNNVL, PART_OF, REPLICA_INDEX
from gkm.api.network_settings import Network
from gkm_operator.mnnvl.required import SetDomainKey
from support.grove.objects import NAMESPACE, Json, clique, pod_clique_set
from support.operator.workloads import ON, Workloads

ENABLED = {AUTO_MNNVL: "enabled"}
CLIQUES, GROUPS = "/podcliques", "/podcliquescalinggroups"


def keys(replicas: int, group: str = "") -> list[SetDomainKey]:
    return [SetDomainKey(replica, group) for replica in range(replicas)]


def an_object(
    path: str = CLIQUES, replica: int = 0, name: str = "worker", owner: Json | None = None, **metadata: object
) -> Json:
    """A PodClique, or scaling group, of the set `test-pcs`, as Grove makes it."""
    labels = {PART_OF: "test-pcs", REPLICA_INDEX: str(replica)}
    made = {"name": f"test-pcs-{replica}-{name}", "namespace": NAMESPACE, "labels": labels, **metadata}
    if owner is not None:
        made["ownerReferences"] = [owner]
    spec = clique(name)["spec"] if path == CLIQUES else {"replicas": 1, "cliqueNames": ["worker"]}
    return {"metadata": made, "spec": spec}


def a_site(
    replicas: int = 2, present: int = 2, settings: Network = ON, annotations: Mapping[str, str] = ENABLED
) -> Workloads:
    """A cluster with the enrolled set `test-pcs`, and its first domains; the ConfigMap is read."""
    site = Workloads(settings)
    site.create_set(pod_clique_set(replicas=replicas, annotations=annotations), *keys(present))
    site.observe()
    return site
