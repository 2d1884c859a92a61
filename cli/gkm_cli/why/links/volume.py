"""The pod's volume: it names one cache, and a container mounts it."""

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome


def decide(facts: Facts) -> Outcome:
    """Decide about the volume."""
    volume = facts.volume.name
    if facts.cache_name is None:
        return Broken(
            f"the attributes of the volume {volume} do not name one cache of the pod's own namespace",
            "name it by cacheName, or a ClusterGKMCache by clusterCacheName (docs/design/volumes.md)",
        )
    mounts = [f"{container.name} at {mount.mount_path}" for container, mount in facts.pod.mounts(volume)]
    if not mounts:
        return Broken(f"no container mounts the volume {volume}", "add it to the volumeMounts of the container")
    return Holds(f"{facts.named}, mounted by {', '.join(mounts)}")
