"""The placement of a run by the integer program: read from its solution, with ties broken by keys (calculus.md).

After the costs of the policy the program prefers earlier keys. Domains that are alike (same block, same slots for each
kind of nodes, same free GPUs) are then renumbered, so that of these the first are used, with the most groups.
"""

from collections import defaultdict
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing import WHOLE, Chosen
from gkm.packing.domains.objective import CostPart
from gkm.packing.model import PlacementModel, place
from gkm.packing.program import SearchLimits, Solution
from gkm.packing.values import Request

_Kind = tuple[int, tuple[int, ...], int]


class Modeled(NamedTuple):
    """What domains take, the costs in the order of the policy, and a bound of the cost after spares."""

    chosen: list[Chosen]
    cost: tuple[int, ...]
    bound: int


def modeled(
    capacity: Capacity,
    request: Request,
    share: int = 0,
    *,
    overflow: bool,
    limits: SearchLimits,
    feasible: bool = False,
) -> Modeled | None:
    """Return the best placement that the program finds; None if the run does not fit.

    With a `share` each domain takes so many groups or none. A `feasible` placement is any one.

    Raises:
        TooLargeError: the limits end the search before the first placement.
    """
    model = place(capacity, request, leave=overflow)
    used = model.used[CostPart.DOMAINS]
    if share and request.may_spread:
        for domain, column in used.items():
            model.program.row({**model.groups(domain=domain), column: -share}, least=0, most=0)
    keys = {column: domain for domain, column in used.items()}
    costs = [] if feasible else model.costs(request.policy)
    solution = model.program.solve(costs if feasible else [*costs, keys], limits)
    if solution is None:
        return None
    chosen = _renumbered(capacity, _chosen(model, solution, max(1, len(request.ceilings))))
    return Modeled(chosen, solution.reached[: len(costs)], solution.bounds[1] if costs else 0)


def _chosen(model: PlacementModel, solution: Solution, scopes: int) -> list[Chosen]:
    found: list[Chosen] = []
    for domain in sorted(model.used[CostPart.DOMAINS]):
        short = [model.count(solution, model.short, (domain, scope)) for scope in range(scopes)]
        groups = [model.count(solution, model.whole, (domain, scope)) + short[scope] for scope in range(scopes)]
        away = tuple([model.count(solution, model.leaving, (domain, scope)) for scope in range(scopes)])
        if any(groups):
            at = short.index(1) if any(short) else WHOLE
            found.append(Chosen(domain, tuple(groups), at, away if model.leaving else ()))
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
