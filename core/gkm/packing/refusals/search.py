"""The smallest change of each kind that makes a run fit: an objective of one program each (calculus.md)."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from time import monotonic
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.errors import TooLargeError
from gkm.packing.inventory import Inventory
from gkm.packing.program import SearchLimits, Solution, Terms
from gkm.packing.refusals.pools import Gains, Pools, Sizes, pools
from gkm.packing.values import Request

SECONDS = 2.0
MAX_PARTS = 200
"""Areas that are tried one after another for a run that stays within one."""
_NODES = 2_000


class Found(NamedTuple):
    """What an objective reached, and whether nothing less is possible."""

    reached: tuple[int, ...]
    proven: bool
    nodes: tuple[int, ...] = ()


def smallest(request: Request) -> Request:
    """Return a run of the smallest size that a malleable one may have, else the request itself."""
    return replace(request, gpus=request.gpus - request.size_steps * request.size_step, malleability=None)


@dataclass(slots=True)
class RefusalSearch:
    """A run that does not fit, in its smallest size, and what is left of the time for all searches together."""

    inventory: Inventory
    request: Request
    offer: Capacity = field(init=False)
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.request = smallest(self.request)
        self.offer = capacity(self.inventory, self.request)
        self.until = monotonic() + SECONDS

    def fits(self, request: Request) -> bool:
        """Return whether a run of the same pods and scopes fits."""
        return self._least(request, Sizes.of(request), lambda _: [{}]) is not None

    def fewer_spares(self, request: Request) -> int | None:
        """Return the most spares a group, fewer than the request's, with which it fits: fewer fit where more do."""
        low, high = -1, request.spares - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.fits(replace(request, spares=middle)):
                low = middle
            else:
                high = middle - 1
        return None if low < 0 else low

    def largest(self) -> Found | None:
        """Return whole groups and the pods of a short last group of the largest smaller run, each less than 0."""

        def objectives(model: Pools) -> list[Terms]:
            return [_negative(model.total(model.whole)), _negative(model.total(model.pods))]

        return self._least(self.request, Sizes.below(self.request), objectives)

    def least_ceiling(self, scope: int) -> Found | None:
        """Return the fewest pods that a scope has to give, the others as they are."""
        given: list[int | None] = list(self._ceilings())
        given[scope] = None
        return self._least(
            self.request,
            Sizes.of(self.request),
            lambda model: [model.pods_and_spares(scope, self.request)],
            ceilings=given,
        )

    def fewest_nodes(self) -> Found | None:
        """Return the fewest nodes that, wholly freed, make the run fit."""
        gains = self._gains()
        return self._least(self.request, Sizes.of(self.request), lambda model: [model.freed], gains=gains)

    def _ceilings(self) -> list[int]:
        return [ceiling.gpus // self.request.pod_gpus for ceiling in self.request.ceilings]

    def _gains(self) -> Gains:
        """Return the nodes of which freeing makes slots; of equal ones those with fewest GPUs in use come first."""
        pod, found = self.request.pod_gpus, Gains()
        nodes, kinds = self.inventory.nodes, self.offer.node_kinds.tolist()
        domains = self.inventory.domain_of.tolist()
        for number, (node, kind, domain) in enumerate(zip(nodes, kinds, domains, strict=True)):
            gain = node.total // pod - node.free // pod
            if gain and kind >= 0:
                found.setdefault((domain, kind), []).append((gain, number))
        for members in found.values():
            members.sort(key=lambda one: (-one[0], nodes[one[1]].total - nodes[one[1]].free, one[1]))
        return found

    def _least(
        self,
        request: Request,
        sizes: Sizes,
        objectives: Callable[[Pools], Sequence[Terms]],
        *,
        ceilings: Sequence[int | None] | None = None,
        gains: Gains | None = None,
    ) -> Found | None:
        """Return the least objectives in any part of the cluster that can hold the run, None where there is none.

        Raises:
            TooLargeError: the time or the number of domains that are tried does not suffice.
        """
        best: Found | None = None
        proven = True
        given = self._ceilings() if ceilings is None else ceilings
        for tried, (bound, domains) in enumerate(self._parts(request, sizes, gains or {})):
            if best and gains and bound >= best.reached[0]:
                break
            if monotonic() >= self.until or tried >= MAX_PARTS:
                if best is None:
                    raise TooLargeError(f"the search ended after {SECONDS:g} seconds or {MAX_PARTS} areas")
                return best._replace(proven=False)
            model = pools(self.offer, request, sizes, domains, ceilings=given, gains=gains)
            solved = model.program.solve(objectives(model), SearchLimits(self.until, _NODES))
            if solved is not None:
                proven = proven and solved.proven
                if best is None or solved.reached < best.reached:
                    best = Found(solved.reached, proven, _chosen(model, solved, gains or {}))
        return best and best._replace(proven=proven)

    def _parts(self, request: Request, sizes: Sizes, gains: Gains) -> list[tuple[int, list[int]]]:
        """Return the areas that may hold the run, each with its domains: the cluster, or the area that it stays within.

        Each has the nodes that are to be freed there at least, and comes after those where these are fewer. Domains
        that offer no more than another of them are left out where the run does not spread.
        """
        needed = sizes.whole[0] * (request.group_pods + request.spares)
        needed = max(1, needed + (sizes.short[0] + request.spares) * (sizes.short[0] > 0))
        slots, kinds = self.offer.slots.tolist(), range(len(self.offer.kinds))
        areas: dict[tuple[str, ...], list[int]] = {}
        for domain, place in enumerate(self.inventory.places):
            areas.setdefault(place[: request.depth], []).append(domain)
        parts: list[tuple[int, int, list[int]]] = []
        for domains in areas.values():
            each = (gains.get((domain, kind), []) for domain in domains for kind in kinds)
            added = sorted((gain for nodes in each for gain, _ in nodes), reverse=True)
            reached = list(accumulate(added, initial=sum(sum(slots[domain]) for domain in domains)))
            if reached[-1] >= needed:
                parts.append((bisect_left(reached, needed), -reached[-1], domains))
        found: list[tuple[int, list[int]]] = []
        for bound, _, domains in sorted(parts):
            larger = [slots[other] for _, (other,) in found] if not gains and not request.may_spread else []
            here = slots[domains[0]]
            if not any(all(one >= two for one, two in zip(there, here, strict=True)) for there in larger):
                found.append((bound, domains))
        return found


def _negative(terms: Terms) -> dict[int, int]:
    return {column: -weight for column, weight in terms.items()}


def _chosen(model: Pools, solved: Solution, gains: Gains) -> tuple[int, ...]:
    """Return the numbers of the nodes that a solution frees."""
    found: list[int] = []
    left: dict[tuple[tuple[int, int], ...], int] = {}
    for column, nodes, domains in model.options:
        first = left.get(domains, 0)
        left[domains] = first + solved.values[column]
        for key in domains[first : left[domains]]:
            found += [number for _, number in gains[key][:nodes]]
    for (domain, kind, gain), column in model.nodes.items():
        here = [number for size, number in gains[domain, kind] if size == gain]
        found += here[: solved.values[column]]
    return tuple(sorted(found))
