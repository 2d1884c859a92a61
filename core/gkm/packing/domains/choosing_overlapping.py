"""Which domains a run uses, where spares must leave and nodes are in several of its scopes."""

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing import Chosen, costs_of, runs, useful
from gkm.packing.domains.cover import Cell
from gkm.packing.domains.mixtures import subsets
from gkm.packing.domains.options import shape
from gkm.packing.domains.overlapping import overlapping_options, states
from gkm.packing.domains.reading_overlapping import read_states
from gkm.packing.values import Request


def choose_overlapping(capacity: Capacity, request: Request) -> list[Chosen] | None:
    """Return what each used domain takes at least cost, in order of places; None if the run does not fit.

    Raises:
        TooLargeError: there are too many states.
    """
    size = shape(request)
    scopes = len(request.ceilings)
    domains = useful(capacity.domain_slots, size, leave=True)
    wanted = request.groups * (size.pods + size.spares) - size.missing
    if not len(domains) or wanted > int(capacity.domain_slots.sum()):
        return None
    weights = costs_of(capacity, request, domains)
    offered = [
        overlapping_options(
            dict(zip(capacity.kinds, capacity.slots[domain].tolist(), strict=True)),
            int(capacity.free[domain]),
            size,
            weights,
            scopes=scopes,
            most=request.groups,
        )
        for domain in domains.tolist()
    ]
    choices = list(subsets(range(scopes)))
    nothing = (0,) * (1 + scopes + len(choices))
    tables = states(offered, runs(capacity.inventory.blocks[domains]), weights, request.groups, nothing)
    slots = [int(capacity.scope_slots(some).sum()) for some in choices]
    allowed = [cell for cell in tables.unused[0] if _allowed(cell, request, slots)]
    if not allowed:
        return None
    least = min(tables.unused[0][cell] for cell in allowed)
    starts = [cell for cell in allowed if tables.unused[0][cell] == least]
    return [Chosen(int(domains[taken.domain]), *taken[1:]) for taken in read_states(tables, starts)]


def _allowed(cell: Cell, request: Request, slots: list[int]) -> bool:
    """Return whether a state is all of the run, within the ceilings, and every spare that leaves finds a slot."""
    size = shape(request)
    groups, needs = cell[1 : 1 + len(request.ceilings)], cell[1 + len(request.ceilings) :]
    if sum(groups) != request.groups or bool(cell[0]) != bool(size.missing):
        return False
    for scope, (ceiling, count) in enumerate(zip(request.ceilings, groups, strict=True)):
        pods = count * (size.pods + size.spares) - (size.missing if cell[0] == 1 + scope else 0)
        if pods > ceiling.gpus // request.pod_gpus:
            return False
    return all(need <= offered for need, offered in zip(needs, slots, strict=True))
