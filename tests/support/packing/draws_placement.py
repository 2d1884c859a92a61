"""A run placed by dice: valid, seldom the best. It makes former plans, and ceilings that a run just fits.

It shares the values of `gkm.packing` and nothing else with the planner, so that a draw is the same case whatever the
planner becomes.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from gkm.packing.values import Distance, Group, Location, Node, Request, Share, Spare

LEVELS = (Distance.DOMAIN, Distance.BLOCK, Distance.CLUSTER, Distance.REGION, Distance.NONE)


class _Free:
    """What is free while groups are placed: pods of nodes, and GPUs of scopes."""

    def __init__(self, nodes: Sequence[Node], run: Request) -> None:
        self.pod = run.pod_gpus
        self.nodes = {node.name: node for node in nodes}
        self.pods = {node.name: node.free // self.pod for node in nodes}
        self.given = {ceiling.scope: ceiling.gpus for ceiling in run.ceilings} or {"": 10**9}

    def names(self, scope: str, place: Location | None = None) -> list[str]:
        """Return the nodes of a scope that have a slot, in a domain or anywhere."""
        return [
            name
            for name, node in self.nodes.items()
            if self.pods[name] and (not scope or scope in node.scopes) and place in (None, node.place)
        ]

    def slots(self, scope: str, place: Location | None = None) -> int:
        return sum(self.pods[name] for name in self.names(scope, place))

    def take(self, name: str, scope: str, pods: int) -> Share:
        self.pods[name] -= pods
        self.given[scope] -= pods * self.pod
        return Share(name, pods * self.pod)


def placed(chance: Random, nodes: Sequence[Node], run: Request) -> tuple[Group, ...]:
    """Return as many groups of a run as dice find slots for, the short one at the end if it is among them."""
    free = _Free(nodes, run)
    places = sorted({node.place for node in nodes})
    if not run.may_spread:
        places = [chance.choice(places)]
    sizes = [run.group_pods] * (run.groups - 1) + [run.last_pods]
    if chance.random() < 0.5:
        sizes.reverse()
    found: list[Group] = []
    for pods in sizes:
        homes = [
            (place, scope)
            for place in places
            for scope, gpus in free.given.items()
            if free.slots(scope, place) >= pods + (0 if run.may_spread else run.spares)
            and free.slots(scope) >= pods + run.spares
            and gpus >= (pods + run.spares) * run.pod_gpus
        ]
        if not homes:
            break
        used = [home for home in homes if found and home[0] == found[-1].place]
        place, scope = chance.choice(used if used and chance.random() < 0.6 else homes)
        found.append(_group(chance, free, Group(0, pods * run.pod_gpus, place, scope, ()), run.spares))
    found.sort(key=lambda group: -group.gpus)
    return tuple(replace(group, index=index) for index, group in enumerate(found))


def _group(chance: Random, free: _Free, group: Group, spares: int) -> Group:
    nodes: list[Share] = []
    left = group.gpus // free.pod
    for name in _ordered(chance, free, free.names(group.scope, group.place)):
        pods = min(left, free.pods[name])
        if pods:
            nodes.append(free.take(name, group.scope, pods))
        left -= pods
    ready = []
    for _ in range(spares):
        names = free.names(group.scope, group.place) or free.names(group.scope)
        name = chance.choice(sorted(names))
        free.take(name, group.scope, 1)
        place = free.nodes[name].place
        shared = next(number for number in range(5) if place[: 4 - number] == group.place[: 4 - number])
        ready.append(Spare(name, free.pod, place, LEVELS[shared]))
    return replace(group, nodes=tuple(sorted(nodes)), spares=tuple(sorted(ready, key=lambda spare: spare.node)))


def _ordered(chance: Random, free: _Free, names: Sequence[str]) -> list[str]:
    """Return nodes in an order to fill them: the tightest first, or any."""
    found = sorted(names)
    chance.shuffle(found)
    return found if chance.random() < 0.3 else sorted(found, key=free.pods.__getitem__)
