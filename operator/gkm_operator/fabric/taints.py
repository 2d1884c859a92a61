"""The taint gkm.io/nvlink-fabric-unhealthy of a Node, from its condition NVLinkFabricHealthy. Pure.

A node that is not known keeps what it has: it gets no taint, and loses none.
"""

from collections.abc import Iterable, Sequence

from gkm.api.meta import FALSE, UNKNOWN
from gkm.kube.resources import Json
from gkm.topology.nodes import NodeCondition, Taint

TAINT = "gkm.io/nvlink-fabric-unhealthy"
"""All taints with this key are GKM's, and no other is."""


def effects_of(taints: Iterable[Taint]) -> frozenset[str]:
    """Return the effects of GKM's fabric taint among the taints of a node; empty if the node does not have it."""
    return frozenset(taint.effect for taint in taints if taint.key == TAINT)


def wanted_effects(condition: NodeCondition | None, effect: str, now: frozenset[str]) -> frozenset[str]:
    """Return the effects that GKM's fabric taint should have on a node; `now` are its present effects."""
    if condition is not None and condition.status == UNKNOWN:
        return now
    return frozenset({effect} if condition is not None and condition.status == FALSE else ())


def with_effects(taints: Sequence[Json], effects: Iterable[str]) -> list[Json]:
    """Return a Node's taints with GKM's fabric taint replaced by one for each effect; other taints stay whole."""
    others = [taint for taint in taints if taint.get("key") != TAINT]
    return [*others, *({"key": TAINT, "effect": effect} for effect in sorted(effects))]
