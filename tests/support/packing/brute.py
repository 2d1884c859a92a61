"""Every way to place a small run, tried one after another: slow, and plain enough to be seen to be right.

It shares the values of `gkm.packing` and nothing else with the planner. The rules are those of calculus.md:
which domain a group lies in matters, and which scope, and how many groups keep their spares; nothing else costs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from gkm.packing.values import Ceiling, Location, Node, Plan, Request
from support.packing.costs import Cost, cost_of, usable

ANY = ""  # the scope of every group where a request has none
Block = tuple[str, str, str]


@dataclass(frozen=True)
class Best:
    """The best there is: its size in GPUs, its cost, and the domains with groups, in the order of their keys."""

    gpus: int
    cost: Cost
    domains: tuple[Location, ...]


@dataclass(frozen=True)
class _Option:
    """What one domain takes: whole groups by scope, the scope of the last group where it is here, who keeps spares."""

    whole: tuple[int, ...]
    last: int | None
    home: tuple[int, ...]

    def groups(self, scope: int) -> int:
        return self.whole[scope] + (self.last == scope)

    @property
    def used(self) -> bool:
        return any(self.whole) or self.last is not None


def legal_sizes(request: Request) -> Iterator[int]:
    """Yield the sizes in GPUs that a run may have, the largest first. Sizes that leave a broken pod are none."""
    size, malleable = request.gpus, request.malleability
    while size >= 1:
        if size % request.pod_gpus == 0:
            yield size
        if malleable is None or size - malleable.step_gpus < malleable.min_gpus:
            return
        size -= malleable.step_gpus


def best(nodes: Sequence[Node], request: Request) -> Best | None:
    """Return the best plan of the largest size that fits, or None where no size does."""
    for gpus in legal_sizes(request):
        found = Search(nodes, replace(request, gpus=gpus, malleability=None)).best()
        if found is not None:
            return found
    return None


def fits(nodes: Sequence[Node], request: Request) -> bool:
    """Return whether any size of the run fits."""
    return best(nodes, request) is not None


def largest_groups(nodes: Sequence[Node], request: Request) -> int:
    """Return how many whole groups fit at most, under the same policy and with the same spares."""
    groups = 0
    while fits(nodes, replace(request, gpus=(groups + 1) * request.group_gpus, malleability=None)):
        groups += 1
    return groups


def priced(nodes: Sequence[Node], plan: Plan) -> Best:
    """Return what a plan costs, counted from where its groups and spares lie."""
    used = {group.place for group in plan.groups}
    return Best(plan.gpus, cost_of(nodes, plan.request, plan.groups), tuple(sorted(used)))


class Search:
    """One request of one size on one inventory."""

    def __init__(self, nodes: Sequence[Node], request: Request) -> None:
        self.request = request
        self.ceilings = request.ceilings or (Ceiling(ANY, sum(node.free for node in nodes)),)
        self.scopes = range(len(self.ceilings))
        self.domains: dict[Location, list[Node]] = {}
        for node in usable(nodes, request):
            self.domains.setdefault(node.place, []).append(node)
        self.keys = sorted(self.domains)
        self.slots = {(key, some): self._slots(key, some) for key in self.keys for some in _subsets(self.scopes)}
        short = request.last_pods != request.group_pods
        self.last_pods = request.last_pods if short else None
        self.whole = request.groups - short

    def best(self) -> Best | None:
        """Return the least cost in the order of the policy, of equals the smallest keys."""
        policy = self.request.policy
        plans = [self._judged(plan) for plan in self._plans([self._options(key) for key in self.keys], self.whole)]
        found = [plan for plan in plans if plan is not None]
        return min(found, key=lambda plan: (plan.cost.by(policy), plan.domains), default=None)

    def _slots(self, key: Location, scopes: Sequence[int]) -> int:
        """Return how many pods the nodes of a domain take that any of these scopes has."""
        names = {self.ceilings[scope].scope for scope in scopes}
        nodes = [node for node in self.domains[key] if not self.request.ceilings or names & node.scopes]
        return sum(node.free // self.request.pod_gpus for node in nodes)

    def _options(self, key: Location) -> list[_Option]:
        """Return whatever a domain can take on its own."""
        most = self.slots[key, tuple(self.scopes)] // self.request.group_pods
        lasts: list[int | None] = [None] if self.last_pods is None else [None, *self.scopes]
        found = []
        for whole in product(range(min(most, self.whole) + 1), repeat=len(self.scopes)):
            for last in lasts:
                option = _Option(whole, last, tuple(0 for _ in self.scopes))
                if self._holds(key, option):
                    found += [kept for kept in self._homes(option) if self._holds(key, kept)]
        if len(self.scopes) == 1:  # whoever can keep spares does: with one scope nobody else is the worse for it
            return [
                o for o in found if not any((o.whole, o.last) == (p.whole, p.last) and p.home > o.home for p in found)
            ]
        return found

    def _homes(self, option: _Option) -> Iterator[_Option]:
        """Yield how many groups of each scope may keep all their spares in the domain."""
        counts = [option.groups(scope) for scope in self.scopes]
        for home in product(*[range(count + 1) if self.request.spares else [count] for count in counts]):
            yield replace(option, home=home)

    def _holds(self, key: Location, option: _Option) -> bool:
        """Hall: any scopes together ask for no more slots than their nodes have."""
        return all(self._asked(option, some) <= self.slots[key, some] for some in _subsets(self.scopes))

    def _asked(self, option: _Option, scopes: Sequence[int]) -> int:
        pods = sum(option.whole[scope] * self.request.group_pods for scope in scopes)
        last = (self.last_pods or 0) if option.last in scopes else 0
        return pods + last + sum(option.home[scope] for scope in scopes) * self.request.spares

    def _plans(
        self, options: Sequence[Sequence[_Option]], whole: int, *, last: bool = False
    ) -> Iterator[list[_Option]]:
        """Yield one option a domain, so that every group lies somewhere."""
        if not options:
            if not whole and (last or self.last_pods is None):
                yield []
            return
        for option in options[0]:
            taken = sum(option.whole)
            if taken <= whole and not (last and option.last is not None):
                for rest in self._plans(options[1:], whole - taken, last=last or option.last is not None):
                    yield [option, *rest]

    def _judged(self, plan: list[_Option]) -> Best | None:
        """Return what a plan costs; None where it breaks a ceiling, or spares that leave have nowhere to go."""
        used = [key for key, option in zip(self.keys, plan, strict=True) if option.used]
        away = [sum(option.groups(scope) - option.home[scope] for option in plan) for scope in self.scopes]
        if any(self._gpus(plan, scope) > self.ceilings[scope].gpus for scope in self.scopes):
            return None
        if not self.request.may_spread and (len(used) > 1 or any(away)):
            return None
        if not self._away_fit(plan, away):
            return None
        free = sum(node.free for key in used for node in self.domains[key])
        cost = Cost.of(sum(away), free, used)
        return Best(self.request.gpus, cost, tuple(used))

    def _gpus(self, plan: list[_Option], scope: int) -> int:
        """Return what a scope gives: the groups that lie in it, and their spares wherever they are."""
        whole = sum(option.whole[scope] for option in plan)
        last = sum(option.last == scope for option in plan)
        pods = whole * self.request.group_pods + last * (self.last_pods or 0) + (whole + last) * self.request.spares
        return pods * self.request.pod_gpus

    def _away_fit(self, plan: list[_Option], away: list[int]) -> bool:
        """Hall over all domains: the spares that leave, on any node of their scope, and whatever stays where it is."""
        for leaving in _subsets(self.scopes):
            worst = sum(away[scope] for scope in leaving) * self.request.spares
            for key, option in zip(self.keys, plan, strict=True):
                worst += max(
                    self._asked(option, some) - self.slots[key, tuple(sorted({*leaving, *some}))]
                    for some in _subsets(self.scopes)
                )
            if worst > 0:
                return False
        return True


def _subsets(scopes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return every choice of scopes, none of them included."""
    return [some for size in range(len(scopes) + 1) for some in combinations(scopes, size)]
