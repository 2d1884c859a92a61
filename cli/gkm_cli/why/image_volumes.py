"""Decide the links of an image volume, which kubelet pulls and mounts without GKM's driver and agent. Pure."""

from collections.abc import Callable, Iterator

from gkm.api.pod_caches import INJECTED, VOLUMES

from gkm_cli.why.facts import CacheName, Facts, PodFacts
from gkm_cli.why.injection import ReportUnreadable, read_report
from gkm_cli.why.links import decide_cache_object, decide_digest, decide_node, decide_signature, has_started
from gkm_cli.why.outcomes import Broken, Holds, Outcome, kubectl


def members(pod: PodFacts) -> Iterator[tuple[str, CacheName]]:
    """Yield the name of each image volume that the webhook added, and the cache whose image it is."""
    try:
        found = read_report(pod.metadata.annotations.get(INJECTED, "")).caches
    except ReportUnreadable:
        return
    images = {volume.name for volume in pod.spec.volumes or () if volume.image is not None}
    for each in found:
        if each.volume in images.intersection(VOLUMES) and each.delivery == "image" and each.member:
            yield each.volume, CacheName(None if each.volume == VOLUMES[1] else pod.metadata.namespace, each.member)


def decide_volume(facts: Facts) -> Outcome:
    """Decide whether the pod has the image volume."""
    mounts = [f"{container.name} at {mount.mount_path}" for container, mount in facts.pod.mounts(facts.volume.name)]
    if not mounts:
        return Broken(f"no container mounts the volume {facts.volume.name}", "create the pod again")
    return Holds(f"{facts.named} by an image volume (delivery: image), mounted by {', '.join(mounts)}")


def decide_mount(facts: Facts) -> Outcome:
    """Decide whether kubelet has mounted the image volume."""
    meta, reference = facts.pod.metadata, facts.volume.image.reference if facts.volume.image else ""
    if not has_started(facts.pod):
        described = kubectl("describe", "pod", meta.name, "-n", meta.namespace)
        waiting = next((each.state.waiting for each in facts.pod.statuses if each.state.waiting), {})
        cause = ": ".join(filter(None, (waiting.get("reason"), waiting.get("message")))) or "kubelet has not said why"
        return Broken(
            f"{reference} is not mounted: {cause}",
            f"kubelet pulls it with the pull secrets of the pod and its node; {described} has its events",
        )
    if not reference.endswith(f"@{facts.existing_cache.status.resolved_digest}"):
        restart = kubectl("delete", "pod", meta.name, "-n", meta.namespace)
        return Broken(f"the pod has {reference}, from before the cache changed", f"start the pod again: {restart}")
    return Holds(f"{reference} is mounted, read-only")


LINKS: dict[str, Callable[[Facts], Outcome]] = {
    "volume": decide_volume,
    "node": decide_node,
    "object": decide_cache_object,
    "digest": decide_digest,
    "signature": decide_signature,
    "mount": decide_mount,
}
NEEDS: dict[str, tuple[str, ...]] = {
    "object": ("volume",),
    "digest": ("object",),
    "signature": ("digest",),
    "mount": ("node", "digest"),
}
