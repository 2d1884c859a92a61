"""Hits: what the containers report about kernels that the cache does not have.

Nothing reports hits one by one (docs/decisions/0021-hits-and-misses.md). A miss on a read-only volume ends the program;
on a private one the program compiles the kernel into the layer, whose size kubelet measures.
"""

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
        return Holds(f"no failure; {_layer(facts)}")
    return Holds("no failure; a missing kernel would end the program, because the volume is read-only")


def _layer(facts: Facts) -> str:
    """Say what is in the private layer: an optional reading, for which most users lack the right."""
    used = facts.layer_bytes
    if used.found is None:
        why = f" ({used.unreadable.why})" if used.unreadable else ""
        return f"a missing kernel is compiled into the private layer, whose size is not known{why}"
    if used.found == 0:
        return "the program has compiled nothing into the volume: each kernel hit, or it has not looked there"
    return f'the program has written {used.found} bytes that the cache lacks: capture: "true" stores them'
