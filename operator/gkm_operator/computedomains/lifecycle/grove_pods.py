"""Separates pods whose label admission wrote, by way of their PodClique, from those with a label of the user. Pure."""

from collections.abc import Callable

from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import PART_OF, REPLICA_INDEX

from gkm_operator.computedomains.objects import WorkloadKind, workload_of
from gkm_operator.computedomains.watcher import DomainWatcher
from gkm_operator.mnnvl.required import names_domain, replica_index
from gkm_operator.pods import WatchedPod

FindSet = Callable[[str, str], PodCliqueSet | None]
"""Returns a PodCliqueSet by namespace and name."""


def joins_domain_of_set(pod: WatchedPod, watcher: DomainWatcher, sets: FindSet | None = None) -> bool:
    """Return whether the label of a pod names a domain of a PodCliqueSet, which that set's reconcile creates.

    The domain may be absent for a moment. A set that is not shown is no reason to wait: if its domain exists, the label
    takes nothing from it. `sets` finds a set with its template; without, a large one counts as one that is not shown.
    """
    metadata = pod.metadata
    domain = watcher.domain(metadata.namespace, pod.domain)
    if domain is not None:
        workload = workload_of(domain)
        return workload is not None and workload.kind is WorkloadKind.SET
    owner = (sets or watcher.pod_clique_set)(metadata.namespace, metadata.label(PART_OF))
    replica = replica_index(metadata.label(REPLICA_INDEX))
    return owner is not None and replica is not None and names_domain(owner, replica, pod.domain)
