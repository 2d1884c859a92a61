"""Choose how many groups each domain takes.

With the tables of `domains` if possible, else an integer program (`model`). Spares lie elsewhere than with their groups
only where the run does not fit otherwise. A run within one area is placed in each area alone. A balanced run is placed
with each share of groups that divides it, and a run that may not spread with a share of all groups. The best of these
is the placement.

After the costs of the policy the program prefers earlier keys. Domains that are alike (same block, same slots for each
kind of nodes, same free GPUs) are then renumbered, so that the first of them are used, with the most groups; where
areas have rules, domains that are alike may be in different racks, and stay as they are.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

import numpy as np

from gkm.packing.area_rules import by_slots, reserved, used_slots
from gkm.packing.domains.capacity import Capacity, Offer, scope_of_domains
from gkm.packing.domains.selection import WHOLE, Chosen, choose, objective_of
from gkm.packing.inventory import Integers
from gkm.packing.model import PlacementModel
from gkm.packing.program import SECONDS, SearchLimits, Solution, total
from gkm.packing.values import CostPart, Policy, Request, TooLargeError

_Kind = tuple[int, tuple[int, ...], int]


class Placement(NamedTuple):
    """The groups that each domain takes, sorted by domain; `capacity` is for the whole run, or for one area of it.

    No placement has less than `bound` of what the policy compares first after spares: domains, blocks, or GPUs that are
    free in the domains that are used. `cost` is in the order of the policy, spares elsewhere first.
    """

    capacity: Capacity
    chosen: list[Chosen]
    bound: int
    cost: tuple[int, ...]

    @property
    def domains(self) -> list[int]:
        """Return the numbers of the domains that take groups."""
        return [item.domain for item in self.chosen]

    def better(self, other: "Placement | None") -> "Placement":
        """Return the better placement of two: the lower cost, then the earlier domains."""
        return self if other is None or (self.cost, self.domains) < (other.cost, other.domains) else other


def best_placement(capacity: Capacity, request: Request, deadline: float | None = None) -> Placement | None:
    """Return the best placement of a run; None if it does not fit. `deadline` is for all integer programs together.

    Raises:
        TooLargeError: the tables and the model find no placement within their limits.
    """
    # 1. Where each domain lies in one scope, tables place the run; what is too large for them the model places.
    # 2. Where scopes overlap, or areas have rules, only the model does; without these more fits, and what does not fit
    #    so needs no model.
    # 3. Each way is tried: spares with their groups, then elsewhere; each area; each share of a balanced run.
    capacity, request = reserved(capacity, request)
    scope = None if request.per_area else scope_of_domains(capacity)
    if scope is None:
        return _by_model(capacity, request, deadline) if _fits_unruled(capacity, request) else None
    try:
        return _by_tables(capacity, request, scope)
    except TooLargeError:
        return _by_model(capacity, request, deadline)


def fits(capacity: Capacity, request: Request, deadline: float | None = None) -> bool:
    """Return whether a run fits at its requested size. `deadline` (monotonic seconds) is for all integer programs.

    Raises:
        TooLargeError: scopes overlap or cut through domains, or areas have rules, and the model finds no answer within
            its limits.
    """
    capacity, request = reserved(capacity, request)
    scope = None if request.per_area else scope_of_domains(capacity)
    if scope is None:
        if not _fits_unruled(capacity, request):
            return False
        until = monotonic() + SECONDS if deadline is None else deadline
        return any(
            _modeled(part, request, share, overflow=away, limits=SearchLimits.before(until), feasible=True)
            for away, part, share in _ways(capacity, request)
        )
    return any(Offer(part, request, scope, away, share).fits() for away, part, share in _ways(capacity, request))


def figure(capacity: Capacity, policy: Policy, domains: Sequence[int]) -> int:
    """Return the figure of a plan that a policy compares first after spares.

    Used domains, blocks, or free GPUs in used domains.
    """
    if policy is Policy.FEWEST_BLOCKS:
        return len(np.unique(capacity.inventory.blocks[list(domains)]))
    return int(capacity.free[list(domains)].sum()) if policy is Policy.LEAST_WASTE else len(domains)


def _fits_unruled(capacity: Capacity, request: Request) -> bool:
    """Return whether a run fits on the nodes of all its scopes, without ceilings and rules for areas."""
    return fits(capacity.without_scopes(), replace(request, ceilings=(), per_area=()))


def _ways(capacity: Capacity, request: Request) -> Iterator[tuple[bool, Capacity, int]]:
    """Yield the ways to place a run: with spares elsewhere or not, in which area, in which shares (0 for any)."""
    parts, shares = list(_areas(capacity, request)), _shares(capacity, request)
    for away in (False, True) if request.spares and request.may_spread else (False,):
        for part in parts:
            for share in shares:
                yield away, part, share


def _areas(capacity: Capacity, request: Request) -> Iterator[Capacity]:
    """Yield what each area offers that a run may be in; everything where it may be anywhere."""
    inventory = capacity.inventory
    if request.within is None:
        yield capacity
        return
    numbers = inventory.areas(request.within.value)
    slots = np.bincount(numbers, weights=capacity.domain_slots)
    for number in np.flatnonzero(slots >= request.all_pods).tolist():
        yield capacity.restricted(numbers == number)


def _shares(capacity: Capacity, request: Request) -> list[int]:
    """Return how many groups a used domain may have, the most first; 0 if that is free."""
    groups, domains = request.groups, int((capacity.domain_slots > 0).sum())
    if not request.may_spread:
        return [groups]
    if not request.balanced:
        return [0]
    most = int(capacity.domain_slots.max(initial=0) + request.group_pods) // request.group_pods
    shares = [share for share in range(1, min(groups, most) + 1) if groups % share == 0 and groups // share <= domains]
    return shares[::-1]


def _by_tables(capacity: Capacity, request: Request, scope: Integers) -> Placement | None:
    costs = objective_of(capacity, request)
    best: Placement | None = None
    for away, part, share in _ways(capacity, request):
        # A choice without spares elsewhere costs less than any with some.
        if away and best is not None and best.cost[0] < costs.weights.spares:
            break
        found = choose(Offer(part, request, scope, away, share), costs, None if best is None else best.cost[0])
        if found is not None:
            bound = figure(capacity, request.policy, [item.domain for item in found.chosen])
            best = Placement(part, found.chosen, bound, (found.cost,)).better(best)
    return best


def _by_model(capacity: Capacity, request: Request, deadline: float | None) -> Placement | None:
    until = monotonic() + SECONDS if deadline is None else deadline
    best: Placement | None = None
    bounds: list[int] = []
    unknown: TooLargeError | None = None
    for away, part, share in _ways(capacity, request):
        if away and best is not None and not best.cost[0]:
            break
        try:
            found = _modeled(part, request, share, overflow=away, limits=SearchLimits.before(until))
        except TooLargeError as error:
            unknown = error
            continue
        if found is not None:
            bounds.append(found.bound)
            best = found.better(best)
    if best is None and unknown is not None:
        raise unknown
    return best and best._replace(bound=0 if unknown is not None else min(bounds))


def _modeled(
    capacity: Capacity,
    request: Request,
    share: int = 0,
    *,
    overflow: bool,
    limits: SearchLimits,
    feasible: bool = False,
) -> Placement | None:
    """Return the best placement that the program finds; None if the run does not fit.

    With a `share` each domain takes so many groups or stays empty. A `feasible` placement need not be the best.

    Raises:
        TooLargeError: the limits end the search before the first placement.
    """
    offer = by_slots(capacity) if request.limits_nodes else capacity
    model = PlacementModel(offer, request, leave=overflow)
    used = model.used[CostPart.DOMAINS]
    if share and request.may_spread:
        for domain, column in used.items():
            model.program.equal(model.groups(domain=domain), column * share)
    keys = total(column * domain for domain, column in used.items())
    costs = [] if feasible else model.costs(request.policy)
    solution = model.program.solve(costs if feasible else [*costs, keys], limits)
    if solution is None:
        return None
    chosen = _chosen(model, solution, len(request.scope_names))
    if not request.per_area:
        chosen = _renumbered(capacity, chosen)
    if request.limits_nodes:
        used_nodes = {key: solution.of(column) for key, column in model.nodes.items()}
        capacity = capacity.with_node_slots(used_slots(offer, used_nodes))
    return Placement(capacity, chosen, solution.bounds[1] if costs else 0, solution.reached[: len(costs)])


def _chosen(model: PlacementModel, solution: Solution, scopes: int) -> list[Chosen]:
    found: list[Chosen] = []
    for domain in sorted(model.used[CostPart.DOMAINS]):
        whole, short, away = (
            [solution.of(columns.get((domain, scope), {})) for scope in range(scopes)]
            for columns in (model.whole, model.short, model.leaving)
        )
        groups = [one + other for one, other in zip(whole, short, strict=True)]
        if any(groups):
            at = short.index(1) if any(short) else WHOLE
            found.append(Chosen(domain, tuple(groups), at, tuple(away) if model.leaving else ()))
    return found


def _renumbered(capacity: Capacity, chosen: list[Chosen]) -> list[Chosen]:
    alike: dict[_Kind, list[int]] = defaultdict(list)
    slots, free, blocks = capacity.slots.tolist(), capacity.free.tolist(), capacity.inventory.blocks.tolist()
    kinds = [(blocks[domain], tuple(slots[domain]), free[domain]) for domain in range(len(slots))]
    for domain, kind in enumerate(kinds):
        alike[kind].append(domain)
    of_kind: dict[_Kind, list[Chosen]] = defaultdict(list)
    for item in chosen:
        of_kind[kinds[item.domain]].append(item)
    found: list[Chosen] = []
    for kind, items in of_kind.items():
        items.sort(key=lambda item: (-sum(item.groups), [-count for count in item.groups], item.short != WHOLE, item))
        found += [item._replace(domain=domain) for item, domain in zip(items, alike[kind], strict=False)]
    return sorted(found)
