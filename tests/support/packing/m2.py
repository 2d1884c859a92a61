"""The rules of the M2 text, restated: a peer that places one group after another and never looks back.

Two readings of it. The *rules*: domains by free capacity, the largest first; a group goes to a domain that the run
already uses and that has enough, else to the largest. The *text*: of the domains that have enough, where least is left.
Both count GPUs, not pods, as the text does: a group may be given to a domain whose nodes cannot hold its pods. With
`whole_pods` they count what whole pods can use, so that every plan is valid.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gkm.packing.values import Location, Node, Request


class _Domain(NamedTuple):
    """What is still free in a domain, in GPUs; domains sort by that, then by place."""

    free: int
    place: Location


@dataclass(frozen=True)
class Peer:
    """Where a peer puts the groups: how many in each domain. `complete` is whether all found a domain."""

    groups: dict[Location, int]
    complete: bool
    invalid: int = 0
    blocks: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", len({place[:3] for place in self.groups}))

    @property
    def domains(self) -> int:
        return len(self.groups)

    @property
    def valid(self) -> bool:
        """Return whether every group has a domain that holds its pods."""
        return self.complete and not self.invalid


def by_rules(nodes: Sequence[Node], request: Request, *, whole_pods: bool = False) -> Peer:
    """Place groups as the rules say. Spares and scopes are not theirs."""
    return _placed(nodes, request, _in_use_then_largest, unit=request.pod_gpus if whole_pods else 1)


def by_text(nodes: Sequence[Node], request: Request, *, whole_pods: bool = False) -> Peer:
    """Place each group where least is left over."""
    return _placed(nodes, request, _tightest, unit=request.pod_gpus if whole_pods else 1)


Choose = Callable[[list[_Domain], list[_Domain], int], tuple[list[_Domain], int] | None]
"""From domains without and with groups, each in order, and GPUs: which list, and where in it; None if there is none."""


def _in_use_then_largest(fresh: list[_Domain], used: list[_Domain], gpus: int) -> tuple[list[_Domain], int] | None:
    for domains in (used, fresh):
        if domains and domains[-1].free >= gpus:
            # Of several that are largest, the first by place.
            return domains, bisect_left(domains, (domains[-1].free,))
    return None


def _tightest(fresh: list[_Domain], used: list[_Domain], gpus: int) -> tuple[list[_Domain], int] | None:
    found = [(domains, at) for domains in (fresh, used) if (at := bisect_left(domains, (gpus,))) < len(domains)]
    return min(found, key=lambda item: item[0][item[1]], default=None)


def _placed(nodes: Sequence[Node], request: Request, choose: Choose, unit: int) -> Peer:
    """Place group after group; what a node has free counts in units of so many GPUs."""
    free: dict[Location, int] = {}
    for node in nodes:
        free[node.place] = free.get(node.place, 0) + node.free // unit * unit
    fresh, used = sorted(_Domain(gpus, place) for place, gpus in free.items()), list[_Domain]()
    groups: dict[Location, int] = {}
    for pods in [request.group_pods] * (request.groups - 1) + [request.last_pods]:
        gpus = pods * request.pod_gpus
        chosen = choose(fresh, used, gpus)
        if chosen is None:
            break
        domains, at = chosen
        left, place = domains.pop(at)
        insort(used, _Domain(left - gpus, place))
        groups[place] = groups.get(place, 0) + 1
    return Peer(groups, sum(groups.values()) == request.groups, _invalid(nodes, request, groups))


def _invalid(nodes: Sequence[Node], request: Request, groups: dict[Location, int]) -> int:
    """Return how many groups lie in a domain whose nodes have no whole pods for them."""
    slots = dict.fromkeys(groups, 0)
    for node in nodes:
        if node.place in slots:
            slots[node.place] += node.free // request.pod_gpus
    return sum(max(0, count - slots[place] // request.group_pods) for place, count in groups.items())
