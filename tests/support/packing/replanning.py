"""The fewest moves there are after a loss, by trying every home for every group that is touched; and what must hold.

It shares the values of `gkm.packing` and nothing else with the planner. The rules are those of calculus.md,
After a loss: who is untouched stays; a group that is touched stays if it keeps its domain and its scope, else it moves.
Where something of the run stands, its spares may be lacking: they keep no group from staying.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from gkm.packing.values import Ceiling, Distance, Group, Location, Node, Policy, Request, Within

Home = tuple[Location, str]
ANY = Ceiling("", 10**9)
DEPTHS = {Within.BLOCK: 3, Within.CLUSTER: 2, Within.REGION: 1, None: 0}


@dataclass(frozen=True)
class Fewest:
    """What the best plan costs: groups moved, pods moved, and then what the policy compares, in its order."""

    moved: int
    pods: int
    policy: tuple[int, ...]


def untouched(nodes: Sequence[Node], former: Sequence[Group], request: Request) -> list[Group]:
    """Return the groups that nothing happened to, of a request that has the size of the former plan."""
    left = {node.name: node.free // request.pod_gpus for node in nodes}
    known = {node.name: node for node in nodes}
    found = []
    for group in former:
        pods = {name: gpus // request.pod_gpus for name, gpus in group.nodes}
        there = all(name in known and _takes(known[name], group.place, group.scope) for name in pods)
        if there and all(left[name] >= count for name, count in pods.items()):
            left.update({name: left[name] - count for name, count in pods.items()})
            found.append(group)
    given: Counter[str] = Counter()
    for group in found:
        given[group.scope] += group.gpus
    short = {ceiling.scope for ceiling in request.ceilings if given[ceiling.scope] > ceiling.gpus}
    return [group for group in found if group.scope not in short]


def standing(nodes: Sequence[Node], former: Sequence[Group], request: Request) -> dict[int, int]:
    """Return how many pods of each group stand: those of the untouched first, then in the order of numbers."""
    left = {node.name: node.free // request.pod_gpus for node in nodes}
    known = {node.name: node for node in nodes}
    whole = {group.index for group in untouched(nodes, former, replace(request, ceilings=()))}
    found: dict[int, int] = {}
    for group in sorted(former, key=lambda group: (group.index not in whole, group.index)):
        found[group.index] = 0
        for name, gpus in group.nodes:
            if name in known and _takes(known[name], group.place, group.scope):
                pods = min(left[name], gpus // request.pod_gpus)
                left[name] -= pods
                found[group.index] += pods
    return found


def most_spares(nodes: Sequence[Node], request: Request, groups: Sequence[Group]) -> int:
    """Return for how many spares there is room beside the pods of some groups, by trying."""
    left = {node.name: node.free // request.pod_gpus for node in nodes}
    for group in groups:
        for name, gpus in group.nodes:
            left[name] -= gpus // request.pod_gpus
    homes = {group.place for group in groups}
    near_homes = _near(request, homes)
    asked: list[list[str]] = []
    for ceiling in request.ceilings or (ANY,):
        here = [group for group in groups if group.scope == ceiling.scope]
        given = (ceiling.gpus - sum(group.gpus for group in here)) // request.pod_gpus
        near = [node.name for node in nodes if (not ceiling.scope or ceiling.scope in node.scopes) and near_homes(node)]
        asked += [near] * min(given, request.spares * len(here), sum(left.values()))
    return _matched(asked, left)


def _near(request: Request, homes: Collection[Location]) -> Callable[[Node], bool]:
    """Return whether spares of a run with groups in some domains may be on a node."""
    depth = DEPTHS[request.within] if request.may_spread else 4
    areas = {place[:depth] for place in homes}
    return lambda node: node.place[:depth] in areas


def _takes(node: Node, place: Location, scope: str) -> bool:
    return node.place == place and (not scope or scope in node.scopes)


class Search:
    """One loss: the nodes that are left, the groups as they were, and the same run, ceilings apart.

    Where all groups are `released`, those that lost nothing may move as well.
    """

    def __init__(
        self, nodes: Sequence[Node], former: Sequence[Group], request: Request, *, released: bool = False
    ) -> None:
        self.nodes, self.former, self.request = nodes, former, request
        self.stay = [] if released else untouched(nodes, former, request)
        names = {group.index for group in self.stay}
        self.touched = [group for group in former if group.index not in names]
        self.stands = standing(nodes, former, request)
        self.spares = 0 if any(self.stands.values()) else request.spares
        scopes = [ceiling.scope for ceiling in request.ceilings or (ANY,)]
        usable = [node for node in nodes if not request.ceilings or set(scopes) & node.scopes]
        self.usable = usable
        self.homes: list[Home] = list(product(sorted({node.place for node in usable}), scopes))

    def fewest(self) -> Fewest | None:
        """Return the least cost, None where the touched groups do not fit beside the others."""
        return min(
            (self._cost(homes) for homes in self._fitting()),
            key=lambda cost: (cost.moved, cost.pods, cost.policy),
            default=None,
        )

    def fewest_moved(self) -> int | None:
        """Return the fewest groups that must move, None where they do not fit beside the others."""
        tries = sorted(product(self.homes, repeat=len(self.touched)), key=self._moved)
        return next((self._moved(homes) for homes in tries if self._fits(homes)), None)

    def smaller(self) -> tuple[int, int] | None:
        """Return how many groups fit at most, and the fewest of them that must move; all are of one size."""
        touched = self.touched
        for count in range(len(touched) - 1, -1, -1):
            found = []
            for some in combinations(touched, count):
                self.touched = list(some)
                fewest = self.fewest_moved()
                found += [] if fewest is None else [fewest]
            self.touched = touched
            if found and count + len(self.stay):
                return count + len(self.stay), min(found)
        return None

    def cost_of(self, groups: Sequence[Group]) -> Fewest:
        """Return the cost of a plan by the homes of its groups."""
        homes = {group.index: (group.place, group.scope) for group in groups}
        return self._cost([homes[group.index] for group in self.touched])

    def _fitting(self) -> Iterator[tuple[Home, ...]]:
        return (homes for homes in product(self.homes, repeat=len(self.touched)) if self._fits(homes))

    def _moved(self, homes: Sequence[Home]) -> int:
        return sum((g.place, g.scope) != home for g, home in zip(self.touched, homes, strict=True))

    def _fits(self, homes: Sequence[Home]) -> bool:
        """Return whether all pods and spares find slots, each group within its domain, scope and ceiling."""
        request = self.request
        placed = [*((group.gpus, (group.place, group.scope)) for group in self.stay)]
        placed += [(group.gpus, home) for group, home in zip(self.touched, homes, strict=True)]
        places = {home[0] for _, home in placed}
        depth = DEPTHS[request.within] if request.may_spread else 4
        if len({place[:depth] for place in places}) > 1:
            return False
        if request.balanced and len(set(Counter(home[0] for _, home in placed).values())) > 1:
            return False
        spare = self.spares * request.pod_gpus
        for ceiling in request.ceilings:
            if sum(gpus + spare for gpus, home in placed if home[1] == ceiling.scope) > ceiling.gpus:
                return False
        left = {node.name: node.free // request.pod_gpus for node in self.usable}
        for group in self.stay:
            for name, gpus in group.nodes:
                left[name] -= gpus // request.pod_gpus
        asked: list[list[str]] = []
        for group, (place, scope) in zip(self.touched, homes, strict=True):
            takes = [node.name for node in self.usable if _takes(node, place, scope)]
            if sum(left[name] for name in takes) < group.gpus // request.pod_gpus:
                return False
            asked += [takes] * (group.gpus // request.pod_gpus)
        near_places = _near(request, places)
        for _, (_, scope) in placed:
            near = [n.name for n in self.usable if (not scope or scope in n.scopes) and near_places(n)]
            asked += [near] * self.spares
        return _matched(asked, left) == len(asked)

    def _cost(self, homes: Sequence[Home]) -> Fewest:
        """Return the cost of a run without scopes."""
        request = self.request
        pods = 0
        wanted: dict[Location, list[int]] = {}
        slots: Counter[Location] = Counter()
        for node in self.usable:
            slots[node.place] += node.free // request.pod_gpus
        for group in self.stay:
            slots[group.place] -= group.gpus // request.pod_gpus
            wanted.setdefault(group.place, []).append(request.spares)
        for group, (place, _) in zip(self.touched, homes, strict=True):
            slots[place] -= group.gpus // request.pod_gpus
            wanted.setdefault(place, []).append(request.spares)
            stood = self.stands[group.index] if place == group.place else 0
            pods += group.gpus // request.pod_gpus - stood
        away = sum(_fewest_away(sizes, slots[place]) for place, sizes in wanted.items())
        free = sum(node.free for node in self.usable if node.place in wanted)
        return Fewest(self._moved(homes), pods, (away, *in_order(request.policy, free, set(wanted))))


def in_order(policy: Policy, free: int, places: Collection[Location]) -> tuple[int, ...]:
    """Return costs of the used domains as a policy compares them, after the spares elsewhere."""
    regions, clusters, blocks = (len({place[:depth] for place in places}) for depth in (1, 2, 3))
    return {
        Policy.FEWEST_DOMAINS: (len(places), regions, clusters, free, blocks),
        Policy.FEWEST_BLOCKS: (blocks, regions, clusters, len(places), free),
        Policy.LEAST_WASTE: (free, regions, clusters, len(places), blocks),
    }[policy]


def _fewest_away(sizes: Sequence[int], slots: int) -> int:
    """Return the fewest groups whose spares must leave, so that those of the others and a part of these find slots."""
    for count in range(len(sizes) + 1):
        if any(sum(sizes) - sum(some) <= slots for some in combinations(sizes, count)):
            return count
    raise AssertionError("pods alone do not fit")


def _matched(asked: Sequence[Sequence[str]], left: Mapping[str, int]) -> int:
    """Return how many find a slot on one of the nodes that will do."""
    holders: dict[str, list[int]] = {name: [] for name in left}

    def seat(who: int, seen: set[str]) -> bool:
        for name in asked[who]:
            if name in seen or not left[name]:
                continue
            seen.add(name)
            if len(holders[name]) < left[name]:
                holders[name].append(who)
                return True
            for at, other in enumerate(holders[name]):
                if seat(other, seen):
                    holders[name][at] = who
                    return True
        return False

    return sum(seat(who, set()) for who in range(len(asked)))


def all_spares_at_home(groups: Sequence[Group]) -> bool:
    """Return whether no spare lies outside the domain of its group."""
    return all(spare.distance is Distance.DOMAIN for group in groups for spare in group.spares)
