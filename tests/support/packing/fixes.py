"""Which changes would make a run fit, and which are the smallest: worked out by trying, the judge of `fixes`.

It shares the values of `gkm.packing` and nothing else with the planner. Malleable runs fit in any of their sizes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice
from typing import TypeVar

from gkm.packing.values import Ceiling, Fix, FixKind, Node, Request, Within
from support.packing import brute
from support.packing.brute import legal_sizes

MAX_SETS = 1_500
"""So many sets of fewer nodes are tried, the smallest first."""

_Value = TypeVar("_Value")


def fits(nodes: Sequence[Node], request: Request) -> bool:
    """Return whether a run fits; one that stays within an area is tried in each alone."""
    if request.within is None or not request.may_spread:
        return brute.fits(nodes, request)
    depth = {Within.BLOCK: 3, Within.CLUSTER: 2, Within.REGION: 1}[request.within]
    areas = {node.place[:depth] for node in nodes}
    anywhere = replace(request, within=None)
    return any(brute.fits([node for node in nodes if node.place[:depth] == area], anywhere) for area in areas)


def wrong(nodes: Sequence[Node], request: Request, told: Iterable[Fix]) -> list[str]:
    """Return whatever is not so, or is missing, in what was told of a run that does not fit."""
    by = {kind: [fix for fix in told if fix.kind is kind] for kind in FixKind}
    found = [*_numbers(nodes, request, by), *_ceilings(nodes, request, by[FixKind.RAISE_CEILING])]
    return [*found, *_freed(nodes, request, by[FixKind.FREE_NODES])]


def _numbers(nodes: Sequence[Node], request: Request, by: dict[FixKind, list[Fix]]) -> Iterator[str]:
    spreading = replace(request, may_spread=True)
    spread = not request.may_spread and fits(nodes, spreading)
    fewer = _first(range(request.spares - 1, -1, -1), lambda n: fits(nodes, replace(request, spares=n)))
    both = _first(range(request.spares - 1, -1, -1), lambda n: fits(nodes, replace(spreading, spares=n)))
    alone = spread or fewer is not None or request.may_spread
    whole, short = _sizes(nodes, request)
    areas = [Within.BLOCK, Within.CLUSTER, Within.REGION, None]
    wider = areas[areas.index(request.within) + 1 :] if request.may_spread else []
    area = _first(range(len(wider)), lambda at: fits(nodes, replace(request, within=wider[at])))
    free = request.balanced and fits(nodes, replace(request, balanced=False))
    small = max((node.total for node in nodes), default=0) < request.pod_gpus
    pods = (pod for pod in range(request.pod_gpus - 1, 0, -1) if small and request.pod_gpus % pod == 0)
    pod = _first(pods, lambda pod: fits(nodes, replace(request, pod_gpus=pod)))
    expected: dict[FixKind, list[dict[str, int]]] = {
        FixKind.LEAVE_AREA: [] if area is None else [{wider[area] or "anywhere": 1}],
        FixKind.UNBALANCED: [{"balanced": 0}] if free else [],
        FixKind.SMALLER_PODS: [] if pod is None else [{"pod": pod}],
        FixKind.SPREAD: [{"spread": 1}] if spread else [],
        FixKind.FEWER_SPARES: [] if fewer is None else [{"spares": fewer}],
        FixKind.SPREAD_AND_FEWER_SPARES: [] if alone or both is None else [{"spread": 1, "spares": both}],
        FixKind.SMALLER: [{"gpus": gpus} for gpus in (whole, short) if gpus],
    }
    for kind, changes in expected.items():
        if [dict(fix.changes) for fix in by[kind]] != changes:
            yield f"{kind}: {[dict(fix.changes) for fix in by[kind]]} was told, and {changes} is so"


def _sizes(nodes: Sequence[Node], request: Request) -> tuple[int | None, int | None]:
    """Return the largest size of whole groups, and that with a short last group if it is larger."""
    asked = min(legal_sizes(request))
    sizes = range(asked - request.pod_gpus, 0, -request.pod_gpus)
    rigid = replace(request, malleability=None)
    largest = _first(sizes, lambda gpus: fits(nodes, replace(rigid, gpus=gpus)))
    if largest is None:
        return None, None
    whole = largest - largest % request.group_gpus
    return whole, largest if largest > whole else None


def _ceilings(nodes: Sequence[Node], request: Request, told: list[Fix]) -> Iterator[str]:
    expected: dict[str, int] = {}
    needed = request.gpus + request.groups * request.spares * request.pod_gpus
    for number, (scope, given) in enumerate([(ceiling.scope, ceiling.gpus) for ceiling in request.ceilings]):

        def does(gpus: int, number: int = number, scope: str = scope) -> bool:
            raised = (*request.ceilings[:number], Ceiling(scope, gpus), *request.ceilings[number + 1 :])
            return fits(nodes, replace(request, ceilings=raised))

        least = _first(range(given + 1, needed + 1), does)
        if least is not None:
            expected[scope] = least
    if {scope: gpus for fix in told for scope, gpus in fix.changes.items()} != expected:
        yield f"ceilings: {[dict(fix.changes) for fix in told]} was told, and {expected} is so"


def _freed(nodes: Sequence[Node], request: Request, told: list[Fix]) -> Iterator[str]:
    tried = _Freeing(nodes, request)
    gain = [node.name for node in nodes if node.total // request.pod_gpus > node.free // request.pod_gpus]
    if not told:
        if tried.does(gain):
            yield "nodes: nothing was told, and freeing all of them would do"
        return
    changes = dict(told[0].changes)
    if len(told) > 1 or not changes:
        yield "nodes: it is told once, and names some"
    if changes != {node.name: node.total - node.free for node in nodes if node.name in changes}:
        yield f"nodes: {changes} are not what is in use"
    if not tried.does(changes):
        yield f"nodes: freeing {sorted(changes)} would not do"
    fewer = chain.from_iterable(combinations(gain, size) for size in range(1, len(changes)))
    enough = _first(islice(fewer, MAX_SETS if told[0].least else 0), tried.does)
    if enough is not None:
        yield f"nodes: {sorted(changes)} was told to be the fewest, and {enough} are enough"


class _Freeing:
    """What fits is a matter of slots by domain and scopes alone; many sets of nodes give the same."""

    def __init__(self, nodes: Sequence[Node], request: Request) -> None:
        self._nodes = nodes
        self._request = request
        self._seen: dict[tuple[tuple[str, int], ...], bool] = {}

    def does(self, names: Iterable[str]) -> bool:
        """Return whether the run fits once these nodes are free."""
        chosen = set(names)
        freed = [replace(node, free=node.total) if node.name in chosen else node for node in self._nodes]
        slots: Counter[str] = Counter()
        for node in freed:
            slots[f"{node.place} {sorted(node.scopes)}"] += node.free // self._request.pod_gpus
        key = tuple(sorted(slots.items()))
        if key not in self._seen:
            self._seen[key] = fits(freed, self._request)
        return self._seen[key]


def _first(values: Iterable[_Value], holds: Callable[[_Value], bool]) -> _Value | None:
    return next((value for value in values if holds(value)), None)
