"""Whether a run fits, as an integer program over counts: small however many domains there are (calculus.md).

Where a run fits at all does not depend on which domain is which. Domains whose nodes are in the same scopes are one
pool: it holds so many groups in all, and its slots hold pods and spares in sum. Only a domain in which scopes overlap
without being equal has columns of its own, as it has in `gkm.packing.model`: there the slots of each kind of nodes
flow to scopes. Nodes that may be freed are options of their domain: the first j, by the slots that they add.
Domains that have the same options share one column for each j.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity
from gkm.packing.errors import TooLargeError
from gkm.packing.program import Program, Terms, weighted
from gkm.packing.values import Request

MAX_COLUMNS = 100_000
"""Columns that a program has at most: about a second."""

Key = tuple[int, int]
"""A domain and a kind of its nodes, by number."""
Gains = dict[Key, list[tuple[int, int]]]
"""Nodes that may be freed: what each adds in slots, the largest first, and its number in the inventory."""
Sums = list[dict[int, int]]
"""Weighted columns by scope."""


class Sizes(NamedTuple):
    """Whole groups, and the pods of a short last group, each from and to; and the pods of the run at most."""

    whole: tuple[int, int]
    short: tuple[int, int]
    pods: int

    @classmethod
    def of(cls, request: Request) -> "Sizes":
        """Return the one size that a request asks for."""
        short = request.last_pods % request.group_pods
        whole = request.groups - bool(short)
        return cls((whole, whole), (short, short), request.gpus // request.pod_gpus)

    @classmethod
    def below(cls, request: Request) -> "Sizes":
        """Return all sizes that are smaller than the one of a request."""
        pods = request.gpus // request.pod_gpus - 1
        return cls((0, pods // request.group_pods), (0, min(pods, request.group_pods - 1)), pods)


class FreeingOption(NamedTuple):
    """Freeing so many nodes in each of some domains of one pool: how many do it is the value of the column."""

    column: int
    nodes: int
    domains: tuple[Key, ...]


@dataclass(slots=True)
class Pools:
    """The program, and its sums by scope: whole groups, short groups and the pods of these.

    `freed` counts the nodes that are freed; `options` and `nodes` say which: these by domain, kind and slots added.
    """

    program: Program
    scopes: int
    whole: Sums = field(init=False)
    short: Sums = field(init=False)
    pods: Sums = field(init=False)
    freed: dict[int, int] = field(default_factory=dict)
    options: list[FreeingOption] = field(default_factory=list)
    nodes: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.whole = [{} for _ in range(self.scopes)]
        self.short = [{} for _ in range(self.scopes)]
        self.pods = [{} for _ in range(self.scopes)]

    def total(self, sums: Sums) -> dict[int, int]:
        """Return a sum over all scopes."""
        return weighted(*((1, terms) for terms in sums))

    def pods_and_spares(self, scope: int, request: Request) -> dict[int, int]:
        """Return the pods and spares of a scope."""
        groups = weighted((1, self.whole[scope]), (1, self.short[scope]))
        return weighted((request.group_pods, self.whole[scope]), (1, self.pods[scope]), (request.spares, groups))


def pools(
    offer: Capacity,
    request: Request,
    sizes: Sizes,
    domains: Sequence[int],
    *,
    ceilings: Sequence[int | None],
    gains: Gains | None = None,
) -> Pools:
    """Return the program of a run in these domains; `ceilings` are in pods, None where a scope gives any number.

    Raises:
        TooLargeError: the program has too many columns.
    """
    return _Builder(offer, request, sizes, gains or {}).build(domains, ceilings)


class _Builder:
    def __init__(self, offer: Capacity, request: Request, sizes: Sizes, gains: Gains) -> None:
        self.offer, self.request, self.sizes, self.gains = offer, request, sizes, gains
        self.model = Pools(Program(), max(1, len(request.ceilings)))
        # By kind of nodes: pods that are there, less the slots that are added, and the slots that are there.
        self.taken: dict[int, dict[int, int]] = defaultdict(dict)
        self.slots: dict[int, int] = defaultdict(int)
        self.columns = 0

    def build(self, domains: Sequence[int], ceilings: Sequence[int | None]) -> Pools:
        model, program, sizes = self.model, self.model.program, self.sizes
        pooled, cut = self._divided(domains)
        for kind, members in sorted(pooled.items()):
            self._pool(kind, members)
        for domain, kinds in cut:
            self._domain(domain, kinds)
        if self.request.spares:
            self._spares()
        program.row(model.total(model.whole), least=sizes.whole[0], most=sizes.whole[1])
        if sizes.short[1]:
            program.row(model.total(model.short), least=min(1, sizes.short[0]), most=1)
            program.row(model.total(model.pods), least=sizes.short[0], most=sizes.short[1])
            both = weighted((self.request.group_pods, model.total(model.whole)), (1, model.total(model.pods)))
            program.row(both, most=sizes.pods)
        for scope, most in enumerate(ceilings):
            if most is not None:
                program.row(model.pods_and_spares(scope, self.request), most=most)
        return model

    def _divided(self, domains: Sequence[int]) -> tuple[dict[int, list[int]], list[tuple[int, list[int]]]]:
        """Return the domains of each pool, by kind; and those that scopes cut, with the kinds that they share."""
        pooled: dict[int, list[int]] = defaultdict(list)
        cut = []
        kinds = self.offer.kinds
        for domain, slots in zip(domains, self.offer.slots[list(domains)].tolist(), strict=True):
            here = [kind for kind, count in enumerate(slots) if count or (domain, kind) in self.gains]
            shared = [kind for kind in here if any(kinds[kind] & kinds[other] for other in here if other != kind)]
            for kind in here:
                self.slots[kind] += slots[kind]
                if kind not in shared:
                    pooled[kind].append(domain)
            if shared:
                cut.append((domain, shared))
        return pooled, cut

    def _column(self, most: int) -> int:
        self.columns += 1
        if self.columns > MAX_COLUMNS:
            raise TooLargeError(
                f"{len(self.offer.inventory.places)} domains and {len(self.request.ceilings)} scopes are too many; "
                "ask for fewer scopes or larger groups"
            )
        return self.model.program.column(most)

    def _groups(self, scopes: Iterable[int], slots: int) -> dict[int, dict[int, int]]:
        """Add the groups of some scopes where there are so many slots; return the pods that each scope has there."""
        model, group = self.model, self.request.group_pods
        found: dict[int, dict[int, int]] = {}
        for scope in sorted(scopes):
            need = found[scope] = {}
            if most := min(self.sizes.whole[1], slots // group):
                whole = self._column(most)
                model.whole[scope][whole] = 1
                need[whole] = group
            if most := min(self.sizes.short[1], slots):
                short, pods = self._column(1), self._column(most)
                model.program.row({pods: 1, short: -most}, most=0)
                model.short[scope][short] = model.pods[scope][pods] = need[pods] = 1
        return found

    def _pool(self, kind: int, domains: Sequence[int]) -> None:
        """Add the groups of a pool: no more whole ones than its domains hold, and a short one beside them."""
        group, program = self.request.group_pods, self.model.program
        slots = {domain: int(self.offer.slots[domain, kind]) for domain in domains}
        whole = sum(count // group for count in slots.values())
        rest = max((slots[domain] % group for domain in domains if (domain, kind) not in self.gains), default=0)
        more, beside = self._options(kind, domains, rest)
        most = sum(slots.values()) + sum(gain for domain in domains for gain, _ in self.gains.get((domain, kind), []))
        need = weighted(*((1, terms) for terms in self._groups(self.offer.kinds[kind], most).values()))
        self._take(kind, need)
        program.row(
            weighted((1, {column: 1 for column, pods in need.items() if pods == group}), (-1, more)), most=whole
        )
        if self.sizes.short[1]:
            # The short group takes what the whole ones leave of a domain, or the place of a whole one.
            program.row(weighted((1, need), (-group, more), (-1, beside)), most=group * whole + rest)

    def _options(self, kind: int, domains: Sequence[int], rest: int) -> tuple[Terms, Terms]:
        """Add the options of a pool; return the groups that they add, and what one leaves in a domain beyond `rest`."""
        group, program = self.request.group_pods, self.model.program
        alike: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
        for domain in domains:
            if offered := self.gains.get((domain, kind)):
                alike[int(self.offer.slots[domain, kind]) % group, tuple(gain for gain, _ in offered)].append(domain)
        more: dict[int, int] = {}
        beside: dict[int, int] = {}
        every = bool(self.request.spares or self.sizes.short[1])
        wanted = self.sizes.pods + (self.sizes.whole[1] + 1) * self.request.spares
        for (free, gains), members in sorted(alike.items()):
            keys = tuple((domain, kind) for domain in members)
            chosen: dict[int, int] = {}
            states: list[tuple[int | None, int]] = [(None, free)]
            slots = free
            for nodes, gain in enumerate(gains, 1):
                before, slots = slots, slots + gain
                if every or slots // group > before // group:
                    column = self._column(len(members))
                    self.model.options.append(FreeingOption(column, nodes, keys))
                    self.model.freed[column], chosen[column], more[column] = nodes, 1, slots // group
                    self._take(kind, {column: free - slots})
                    states.append((column, slots % group))
                if slots - free >= wanted:
                    break
            program.row(chosen, most=len(members))
            if self.sizes.short[1]:
                for state, left in states:
                    if left > rest:
                        last = self._column(1)
                        beside[last] = left - rest
                        # A domain of which no node is freed is one of those that no option is chosen for.
                        terms = {last: 1, **chosen} if state is None else {last: 1, state: -1}
                        program.row(terms, most=len(members) if state is None else 0)
        program.row(dict.fromkeys(beside, 1), most=1)
        return {column: groups for column, groups in more.items() if groups}, beside

    def _domain(self, domain: int, kinds: Sequence[int]) -> None:
        """Add a domain in which scopes overlap: its slots flow from kinds of nodes to scopes."""
        program = self.model.program
        slots = {kind: int(self.offer.slots[domain, kind]) for kind in kinds}
        most = {kind: slots[kind] + sum(gain for gain, _ in self.gains.get((domain, kind), [])) for kind in kinds}
        needs = self._groups({scope for kind in kinds for scope in self.offer.kinds[kind]}, sum(most.values()))
        flows = {(kind, scope): self._column(most[kind]) for kind in kinds for scope in sorted(self.offer.kinds[kind])}
        for scope, need in needs.items():
            program.row(weighted((1, need), (-1, {flows[key]: 1 for key in flows if key[1] == scope})), least=0, most=0)
        for kind in kinds:
            taken = {flows[key]: 1 for key in flows if key[0] == kind}
            gains = [gain for gain, _ in self.gains.get((domain, kind), [])]
            for gain in sorted(set(gains)):
                column = self.model.nodes[domain, kind, gain] = self._column(gains.count(gain))
                self.model.freed[column] = 1
                taken[column] = -gain
            program.row(taken, most=slots[kind])
            self._take(kind, taken)

    def _take(self, kind: int, pods: Terms) -> None:
        self.taken[kind] = weighted((1, self.taken[kind]), (1, pods))

    def _spares(self) -> None:
        """Give each spare a slot of its scope, in any of the domains."""
        program, model, spares = self.model.program, self.model, self.request.spares
        most = spares * (self.sizes.whole[1] + 1)
        lying: Sums = [{} for _ in model.whole]
        for kind, taken in sorted(self.taken.items()):
            here = {self._column(most): scope for scope in sorted(self.offer.kinds[kind])}
            for column, scope in here.items():
                lying[scope][column] = 1
            program.row(weighted((1, taken), (1, dict.fromkeys(here, 1))), most=self.slots[kind])
        for scope, columns in enumerate(lying):
            groups = weighted((1, model.whole[scope]), (1, model.short[scope]))
            program.row(weighted((1, columns), (-spares, groups)), least=0, most=0)
