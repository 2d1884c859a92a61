"""The status that the built-in controllers write: how many pods or replicas exist, and how many are ready. Pure."""

from collections.abc import Iterable

from gkm.api.mnnvl_metadata import REPLICA_INDEX, SCALING_GROUP_INDEX

from gkm_operator.cliques.kinds import Child, ChildPod, Parent, PodClique, PodCliqueSet, Status


def status_of(parent: Parent, children: Iterable[Child]) -> Status:
    """Return the status of an object by its children."""
    if isinstance(parent, PodClique):
        living = [child for child in children if isinstance(child, ChildPod) and not child.ended]
        return Status(len(living), sum(pod.ready for pod in living))
    index = REPLICA_INDEX if isinstance(parent, PodCliqueSet) else SCALING_GROUP_INDEX
    return Status(len({child.metadata.labels.get(index) for child in children}))


def fields_of(parent: Parent, status: Status) -> dict[str, int]:
    """Return the fields that the kind has."""
    ready = {"readyReplicas": status.ready_replicas} if isinstance(parent, PodClique) else {}
    return {"replicas": status.replicas} | ready
