"""The rules of the M2 text, restated: a peer that places one group after another and never looks back.

Two readings of it. The *rules*: domains by free capacity, the largest first; a group goes to a domain that the run
already uses and that has enough, else to the largest. The *text*: of the domains that have enough, where least is left.
Both count GPUs, not pods, as the text does: a group may be given to a domain whose nodes cannot hold its pods. With
`whole_pods` they count what whole pods can use, so that every plan is valid.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gkm.packing.values import Node, Place, Request


@dataclass
class _Domain:
    place: Place
    free: int
    groups: int = 0


@dataclass(frozen=True)
class Peer:
    """Where a peer puts the groups: how many in each domain. `complete` is whether all found a domain."""

    groups: dict[Place, int]
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
    domains = _domains(nodes, request.pod_gpus if whole_pods else 1)
    return _placed(nodes, request, domains, lambda fit: min(fit, key=lambda d: (not d.groups, -d.free, d.place)))


def by_text(nodes: Sequence[Node], request: Request, *, whole_pods: bool = False) -> Peer:
    """Place each group where least is left over."""
    domains = _domains(nodes, request.pod_gpus if whole_pods else 1)
    return _placed(nodes, request, domains, lambda fit: min(fit, key=lambda d: (d.free, d.place)))


def _domains(nodes: Sequence[Node], unit: int) -> dict[Place, _Domain]:
    """Return what is free in every domain, in units of so many GPUs of one node."""
    domains: dict[Place, _Domain] = {}
    for node in nodes:
        domains.setdefault(node.place, _Domain(node.place, 0)).free += node.free // unit * unit
    return domains


def _placed(
    nodes: Sequence[Node], request: Request, domains: dict[Place, _Domain], choose: Callable[[list[_Domain]], _Domain]
) -> Peer:
    complete = True
    for pods in [request.group_pods] * (request.groups - 1) + [request.last_pods]:
        gpus = pods * request.pod_gpus
        fitting = [domain for domain in domains.values() if domain.free >= gpus]
        if not fitting:
            complete = False
            break
        chosen = choose(fitting)
        chosen.free -= gpus
        chosen.groups += 1
    groups = {domain.place: domain.groups for domain in domains.values() if domain.groups}
    return Peer(groups, complete, _invalid(nodes, request, groups))


def _invalid(nodes: Sequence[Node], request: Request, groups: dict[Place, int]) -> int:
    """Return how many groups lie in a domain whose nodes have no whole pods for them."""
    slots = dict.fromkeys(groups, 0)
    for node in nodes:
        if node.place in slots:
            slots[node.place] += node.free // request.pod_gpus
    return sum(max(0, count - slots[place] // request.group_pods) for place, count in groups.items())
