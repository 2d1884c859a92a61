"""The smallest change of each kind to a request that would make it fit: found by counting, still to be planned."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from gkm.api.grammar import agree, count_of
from gkm.packing.domains.capacity import capacity
from gkm.packing.inventory import Inventory
from gkm.packing.refusals.feasible import feasible, smallest
from gkm.packing.values import MAX_GPUS, Ceiling, Fix, FixKind, Request

MAX_NAME = 63
"""So many characters of a name are told in a sentence."""

Proposed = Iterator[tuple[Request, Fix]]
"""Changed requests, and the fixes that say what was changed. Finders may raise TooLargeError."""


def spread(inventory: Inventory, request: Request) -> Proposed:
    """Yield the request with its groups in several domains."""
    rigid = smallest(request)
    if not request.may_spread and feasible(capacity(inventory, rigid), replace(rigid, may_spread=True)):
        fix = Fix(FixKind.SPREAD, "let the run spread over several domains", {"spread": 1})
        yield replace(request, may_spread=True), fix


def fewer_spares(inventory: Inventory, request: Request) -> Proposed:
    """Yield the request with the most spares that fit."""
    spares = _most_spares(inventory, smallest(request))
    if spares is not None:
        fix = Fix(FixKind.FEWER_SPARES, f"ask for {_spares(spares, request)}", {"spares": spares})
        yield replace(request, spares=spares), fix


def spread_and_fewer_spares(inventory: Inventory, request: Request) -> Proposed:
    """Yield the request with both changed, where neither alone is enough."""
    if request.may_spread or not request.spares:
        return
    rigid = smallest(request)
    wider = replace(rigid, may_spread=True)
    if _most_spares(inventory, rigid) is None and not feasible(capacity(inventory, wider), wider):
        spares = _most_spares(inventory, wider)
        if spares is not None:
            sentence = f"let the run spread over several domains and ask for {_spares(spares, request)}"
            fix = Fix(FixKind.SPREAD_AND_FEWER_SPARES, sentence, {"spread": 1, "spares": spares})
            yield replace(request, may_spread=True, spares=spares), fix


def whole_groups(inventory: Inventory, request: Request) -> Proposed:
    """Yield the largest run of whole groups that fits."""
    groups = _most_groups(inventory, smallest(request))
    if groups:
        yield _smaller(request, groups * request.group_gpus, count_of(groups, "group"))


def short_group(inventory: Inventory, request: Request) -> Proposed:
    """Yield the largest run that fits, if its last group is a short one."""
    rigid = smallest(request)
    offer = capacity(inventory, rigid)
    pod, group = request.pod_gpus, request.group_gpus
    groups = _most_groups(inventory, rigid)
    most = min(group, rigid.gpus - groups * group) // pod - 1
    pods = _most(1, most, lambda pods: feasible(offer, replace(rigid, gpus=groups * group + pods * pod)))
    if pods is not None:
        what = f"{count_of(groups, 'group')} and a last one of {pods * pod}" if groups else "one short group"
        yield _smaller(request, groups * group + pods * pod, what)


def raised_ceilings(inventory: Inventory, request: Request) -> Proposed:
    """Yield for each scope the request with the least ceiling that alone is enough."""
    rigid = smallest(request)
    # Ceilings change neither the slots nor who may use them.
    offer = capacity(inventory, rigid)
    pod = request.pod_gpus
    needed = min(rigid.groups * (rigid.group_pods + rigid.spares), MAX_GPUS // pod)
    for number, ceiling in enumerate(request.ceilings):

        def raised(pods: int, number: int = number, ceiling: Ceiling = ceiling) -> tuple[Ceiling, ...]:
            higher = Ceiling(ceiling.scope, pods * pod)
            return (*request.ceilings[:number], higher, *request.ceilings[number + 1 :])

        def lacks(pods: int, raised: Callable[[int], tuple[Ceiling, ...]] = raised) -> bool:
            return not feasible(offer, replace(rigid, ceilings=raised(pods)))

        lowest = ceiling.gpus // pod
        if lowest >= needed or lacks(needed):
            continue
        gpus = ((_most(lowest, needed, lacks) or lowest) + 1) * pod
        sentence = (
            f"raise the ceiling of scope {short_name(ceiling.scope)} from {ceiling.gpus} to {count_of(gpus, 'GPU')}"
        )
        fix = Fix(FixKind.RAISE_CEILING, sentence, {ceiling.scope: gpus})
        yield replace(request, ceilings=raised(gpus // pod)), fix


FINDERS: tuple[tuple[str, Callable[[Inventory, Request], Proposed]], ...] = (
    ("spreading", spread),
    ("fewer spares", fewer_spares),
    ("spreading with fewer spares", spread_and_fewer_spares),
    ("a smaller run", whole_groups),
    ("a smaller run with a short last group", short_group),
    ("higher ceilings", raised_ceilings),
)
"""Kinds of changes, as a sentence names them, and what finds them."""


def short_name(name: str) -> str:
    """Return as much of a name as a sentence has room for."""
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def _smaller(request: Request, gpus: int, what: str) -> tuple[Request, Fix]:
    # Its sizes are steps down from the one that it asks for, so that another smallest size alone may not do.
    asked, fixed = smallest(request).gpus, "" if request.malleability is None else ", in this size only,"
    sentence = f"ask for {count_of(gpus, 'GPU')}{fixed} instead of {asked}{' at least' if fixed else ''}: {what}"
    return replace(request, gpus=gpus, malleability=None), Fix(FixKind.SMALLER, sentence, {"gpus": gpus})


def _spares(spares: int, request: Request) -> str:
    return f"{spares or 'no'} spare {agree(spares, 'pod', 'pods')} a group instead of {request.spares}"


def _most_spares(inventory: Inventory, rigid: Request) -> int | None:
    """Return the most spares, fewer than the request's, with which it fits."""
    offer = capacity(inventory, rigid)
    return _most(0, rigid.spares - 1, lambda spares: feasible(offer, replace(rigid, spares=spares)))


def _most_groups(inventory: Inventory, rigid: Request) -> int:
    """Return how many whole groups fit, of a run that is smaller than the request."""
    offer = capacity(inventory, rigid)
    slots = int(offer.domain_slots.sum())
    most = min((rigid.gpus - rigid.pod_gpus) // rigid.group_gpus, slots // rigid.group_pods)
    return _most(1, most, lambda groups: feasible(offer, replace(rigid, gpus=groups * rigid.group_gpus))) or 0


def _most(first: int, last: int, holds: Callable[[int], bool]) -> int | None:
    """Return the last number of a range for which something holds that then holds for all before it."""
    if first > last or not holds(first):
        return None
    while first < last:
        middle = (first + last + 1) // 2
        if holds(middle):
            first = middle
        else:
            last = middle - 1
    return first
