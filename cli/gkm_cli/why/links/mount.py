"""The mount: kubelet and gkm-csi have mounted the digest into the pod."""

from gkm_cli.why.facts import ContainerState, Facts, PodFacts
from gkm_cli.why.outcome import Broken, Holds, Outcome, kubectl

_ENDED = ("Succeeded", "Failed")


def decide(facts: Facts) -> Outcome:
    """Decide about the mount."""
    pod, found = facts.pod, facts.on_node
    meta = pod.metadata
    used = [use for use in (found.pods if found else ()) if (use.namespace, use.name) == (meta.namespace, meta.name)]
    wanted = facts.existing_cache.status.resolved_digest
    if any(use.digest == wanted for use in used):
        return Holds(f"{wanted} is mounted")
    restart = f"start the pod again: {kubectl('delete', 'pod', meta.name, '-n', meta.namespace)}"
    if used:
        return Broken(f"the pod has {used[0].digest}, from before the cache became {wanted}", restart)
    if not _has_started(pod):
        events = facts.events.value or ()
        cause = events[0].message if events else "kubelet has reported no failure yet"
        return Broken(f"the volume is not mounted: {cause}", "kubelet retries; read the message, and wait a minute")
    if facts.attributes.get("ifUnavailable") == "empty":
        return Broken("the pod started with an empty volume, because the cache was not ready then", restart)
    if pod.status.phase in _ENDED:
        return Holds("the pod has ended; its volume was mounted")
    return Holds("the pod runs; the agent has not reported its volume yet")


def _has_started(pod: PodFacts) -> bool:
    """Return whether a container has started: kubelet mounts all volumes before."""
    return any(_started(status.state) or _started(status.last_state) for status in pod.statuses)


def _started(state: ContainerState) -> bool:
    return state.running is not None or state.terminated is not None
