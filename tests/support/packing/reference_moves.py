"""The fewest moves after a loss as an integer program for HiGHS: docs/reference/calculus.md, After a loss.

Groups that nothing happened to lie where they lie; the others stay if they keep their domain and their scope, else
they move. Where the others do not fit beside them, every group is chosen among again at the price of a move. Where
something of the run stands and no group is new, spares may be lacking, so that they keep no group from staying.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gkm.packing.values import Group, Location, Node, Request
from support.packing.costs import ORDERS, Cost, cost_of, usable
from support.packing.draws_losses import Loss
from support.packing.reference import Expression, IntegerProgram


@dataclass(frozen=True)
class Fewest:
    """The fewest moves. `beside` says that the untouched stay; `exact` that no fewer are possible, and as few are.

    `most` is None where a run may be refused, `least` where it must be. `pods` that move and the policy's `costs` are
    known for runs of one scope at most that have all their spares, with the untouched in place.
    """

    beside: bool
    exact: bool
    least: int | None
    most: int | None
    pods: int | None = None
    costs: Cost | None = None


class Remains:
    """What is left of a run: the groups that it still has, of the sizes that they have now, and which of them stand."""

    def __init__(self, loss: Loss) -> None:
        self.nodes, self.request = loss.nodes, loss.request
        self.former = [group for group in loss.former if group.index < self.request.groups]
        self.untouched = _untouched(loss.nodes, self.former, self.request)
        self.stood = _stood(loss.nodes, self.former, self.untouched, self.request)
        indexes = {group.index for group in self.untouched}
        self.touched = [group for group in self.former if group.index not in indexes]

    @property
    def spares(self) -> int:
        """Return the spares that every group must have."""
        grown = self.request.groups > len(self.former)
        return self.request.spares if grown or not any(self.stood.values()) else 0

    def size(self, group: Group) -> int:
        """Return how many pods a group has now."""
        return pods_of(self.request, group.index)


def pods_of(request: Request, index: int) -> int:
    """Return how many pods a group of a run has, by its number."""
    return request.last_pods if index == request.groups - 1 else request.group_pods


def fewest_moves(loss: Loss) -> Fewest:
    """Return the fewest moves, and where they are known the fewest pods and the least costs after them.

    Raises:
        UnprovenError: the case is too large for HiGHS.
    """
    remains = Remains(loss)
    uniform = _uniform(loss)
    moved = _moves(remains, remains.untouched, remains.touched, remains.spares)
    if moved is not None:
        pods, costs = _then(remains) if len(loss.request.ceilings) < 2 else (None, None)
        return Fewest(beside=True, exact=uniform, least=moved, most=moved, pods=pods, costs=costs)
    least = _moves(remains, [], remains.former, remains.spares)
    most = _moves(remains, [], remains.former, loss.request.spares)
    return Fewest(beside=False, exact=uniform, least=least, most=most)


def _uniform(loss: Loss) -> bool:
    """Return whether the nodes of every domain are in the same scopes, so that its slots are alike."""
    kinds = {(node.place, node.scopes) for node in usable(loss.nodes, loss.request)}
    return len(kinds) == len({place for place, _ in kinds})


def _untouched(nodes: Sequence[Node], former: Sequence[Group], request: Request) -> list[Group]:
    known = {node.name: node for node in nodes}
    left = {node.name: node.free // request.pod_gpus for node in nodes}
    found = []
    for group in former:
        pods = {name: gpus // request.pod_gpus for name, gpus in group.nodes}
        there = all(name in known and _takes(known[name], group) and left[name] >= pods[name] for name in pods)
        if there and group.gpus // request.pod_gpus == pods_of(request, group.index):
            left.update({name: left[name] - count for name, count in pods.items()})
            found.append(group)
    given: Counter[str] = Counter()
    for group in found:
        given[group.scope] += group.gpus
    less = {ceiling.scope for ceiling in request.ceilings if given[ceiling.scope] > ceiling.gpus}
    return [group for group in found if group.scope not in less]


def _stood(
    nodes: Sequence[Node], former: Sequence[Group], untouched: Sequence[Group], request: Request
) -> dict[int, int]:
    """Return how many pods of each group stand: those of the untouched first, then in the order of numbers."""
    known = {node.name: node for node in nodes}
    left = {node.name: node.free // request.pod_gpus for node in nodes}
    first = {group.index for group in untouched}
    found: dict[int, int] = {}
    for group in sorted(former, key=lambda group: (group.index not in first, group.index)):
        found[group.index] = 0
        for name, gpus in group.nodes:
            if name in known and _takes(known[name], group):
                lacks = pods_of(request, group.index) - found[group.index]
                pods = min(left[name], gpus // request.pod_gpus, lacks)
                left[name] -= pods
                found[group.index] += pods
    return found


def _takes(node: Node, group: Group) -> bool:
    return node.place == group.place and (not group.scope or group.scope in node.scopes)


class _Moves:
    """A program with a variable for each group that may stay."""

    def __init__(self, remains: Remains, load: Sequence[Group], movable: Sequence[Group], spares: int) -> None:
        self.program = IntegerProgram(remains.nodes, remains.request, spares=spares, load=load)
        program, request = self.program, remains.request
        movable = [group for group in movable if (group.place, group.scope) in program.whole]
        self.stays = {group.index: program.model.addBinary() for group in movable}
        for home, whole in program.whole.items():
            here = [group for group in movable if (group.place, group.scope) == home]
            short = [group for group in here if program.short and group.index == request.groups - 1]
            stay = [self.stays[group.index] for group in here if group not in short]
            program.model.addConstr(program.total(stay) <= whole)
            program.model.addConstr(program.total(self.stays[group.index] for group in short) <= program.last[home])

    def least(self, parts: Sequence[Expression]) -> list[int] | None:
        return self.program.least(parts)

    def moved(self) -> Expression:
        """Return minus the groups that stay, as an expression."""
        return self.program.total(-1 * stays for stays in self.stays.values())

    def pods(self, remains: Remains) -> Expression:
        """Return minus the pods that stay where they are, as an expression."""
        return self.program.total(-remains.stood[index] * stays for index, stays in self.stays.items())


def _moves(remains: Remains, load: Sequence[Group], movable: Sequence[Group], spares: int) -> int | None:
    moves = _Moves(remains, load, movable, spares)
    found = moves.least([moves.moved()])
    return None if found is None else len(movable) + found[0]


def _then(remains: Remains) -> tuple[int | None, Cost | None]:
    """Return the pods that move beside the untouched and the policy's costs, where all spares find slots."""
    moves = _Moves(remains, remains.untouched, remains.touched, remains.request.spares)
    order = ORDERS[remains.request.policy]
    found = moves.least([moves.moved(), moves.pods(remains), *(moves.program.costs[name] for name in order)])
    if found is None or not remains.request.may_spread:
        return None, None
    pods = sum(remains.size(group) for group in remains.touched) + found[1]
    return pods, Cost(**dict(zip(order, found[2:], strict=True)))


def moved_of(loss: Loss, groups: Sequence[Group]) -> list[int]:
    """Return the numbers of the former groups that lie in another domain or scope now."""
    after = {group.index: (group.place, group.scope) for group in groups}
    return [
        group.index
        for group in loss.former
        if group.index in after and after[group.index] != (group.place, group.scope)
    ]


def pods_moved_of(loss: Loss, groups: Sequence[Group]) -> int:
    """Return how many pods of former groups are not where they were; of a group that moved, all."""
    pod, after = loss.request.pod_gpus, {group.index: group for group in groups}
    moved, count = set(moved_of(loss, groups)), 0
    for group in loss.former:
        if group.index in after:
            before = dict(group.nodes)
            shared = 0 if group.index in moved else sum(min(g, before.get(n, 0)) for n, g in after[group.index].nodes)
            count += (after[group.index].gpus - shared) // pod
    return count


def costs_after(loss: Loss, groups: Sequence[Group]) -> Cost:
    """Return what a re-plan costs; spares elsewhere are those that the slots of their domains cannot take."""
    request = loss.request
    slots: Counter[Location] = Counter()
    for node in usable(loss.nodes, request):
        slots[node.place] += node.free // request.pod_gpus
    lacking = 0
    for place in {group.place for group in groups}:
        here = [group for group in groups if group.place == place]
        pods = sum(group.gpus // request.pod_gpus + request.spares for group in here)
        lacking += max(0, -(-(pods - slots[place]) // request.spares)) if request.spares else 0
    return cost_of(loss.nodes, request, groups)._replace(elsewhere=lacking)
