"""Hits: what the containers report about kernels that the cache does not have.

Nothing reports hits one by one (docs/decisions/0021-hits-and-misses.md). A miss on a read-only volume ends the program;
on a private one the program compiles the kernel into the layer, whose size kubelet measures.
"""

import hashlib

from gkm.api.grammar import count_of

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome


def decide(facts: Facts) -> Outcome:
    """Decide about hits."""
    if facts.missed:
        return Broken(
            f"{facts.missed[0]} ended, because a kernel is not in the cache and the volume is read-only",
            'set readOnly: "false" in volumeAttributes, or build an image with all kernels (gkm cache build)',
        )
    if facts.is_private:
        return Holds(f"no failure; {_misses(facts) or _layer(facts)}")
    return Holds("no failure; a missing kernel would end the program, because the volume is read-only")


def _misses(facts: Facts) -> str:
    """Say which kernels the program compiled, as the agent of the node reports; "" without a report."""
    uses = facts.on_node.pods if facts.on_node else ()
    pod, volumes = facts.pod.metadata, [use for use in uses if use.misses and use.misses.kernels]
    # Kubelet makes the id of a volume from the uid of the pod and the name of the volume (csi_plugin.go,
    # makeVolumeHandle).
    name = hashlib.sha256(f"{pod.uid}{facts.volume.name}".encode()).hexdigest()
    found = next((use.misses for use in volumes if use.volume_id == f"csi-{name}"), None)
    if found is None:
        return ""
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(found.reasons.items()))
    if found.at_least:
        return f"the program has compiled at least {count_of(found.kernels, 'kernel')} that the cache lacks ({reasons})"
    at_most = 100 * found.mounted_kernels // (found.mounted_kernels + found.kernels)
    return (
        f"the program has compiled {count_of(found.kernels, 'kernel')} that the cache lacks ({reasons}); the cache has "
        f"{found.mounted_kernels}, so at most {at_most} % hit"
    )


def _layer(facts: Facts) -> str:
    """Describe the private layer: an optional reading, for which most users lack the right."""
    used = facts.layer_bytes
    if used.found is None:
        why = f" ({used.unreadable.why})" if used.unreadable else ""
        return f"a missing kernel is compiled into the private layer, whose size is not known{why}"
    if used.found == 0:
        return "the program has compiled nothing into the volume: each kernel hit, or it has not looked there"
    return f'the program has written {used.found} bytes that the cache lacks: capture: "true" stores them'
