"""The integer program that finds whether a run fits at all, by counting (calculus.md, When it does not fit).

It is small for any number of domains. Domains whose nodes are in the same scopes are one pool: it holds so many groups
in all, and its slots hold pods and spares in sum. Only a domain in which scopes overlap without being equal has columns
of its own. Nodes that may be freed are options of their domain: the first j, by the slots that they add. Domains that
have the same options share one column for each j. Rules for areas are not in it: the caller plans each change.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity
from gkm.packing.model import Flow, Key, RunProgram
from gkm.packing.program import Sum, total
from gkm.packing.values import Request, TooLargeError

MAX_COLUMNS = 100_000
"""Limit of columns of the program: about a second of solving."""

Gains = dict[Key, list[tuple[int, int]]]
"""For nodes that may be freed: the slots that each adds, the largest first, and its number."""


class Sizes(NamedTuple):
    """Bounds of a run's size: of whole groups, of the pods of a short last group; and the limit of all pods."""

    whole: tuple[int, int]
    short: tuple[int, int]
    pods: int

    @classmethod
    def of(cls, request: Request) -> "Sizes":
        """Return the bounds for exactly the size of a request."""
        short = request.last_pods % request.group_pods
        whole = request.groups - bool(short)
        return cls((whole, whole), (short, short), request.gpus // request.pod_gpus)

    @classmethod
    def below(cls, request: Request) -> "Sizes":
        """Return the bounds for all sizes below that of a request."""
        pods = request.gpus // request.pod_gpus - 1
        return cls((0, pods // request.group_pods), (0, min(pods, request.group_pods - 1)), pods)


class FreeingOption(NamedTuple):
    """A way to free nodes: `nodes` of them in each of some domains; the column is the number of domains that do so."""

    column: Sum
    nodes: int
    domains: tuple[Key, ...]


class Pools(RunProgram):
    """The program of a run in some domains, and its sums by scope: whole groups, short groups and the pods of these.

    `ceilings` are in pods, None if a scope gives any number. `freed` counts the nodes that are freed; `options` and
    `nodes` say which: these by domain, kind and slots added.

    Raises:
        TooLargeError: the program has too many columns.
    """

    def __init__(
        self,
        offer: Capacity,
        request: Request,
        sizes: Sizes,
        domains: Sequence[int],
        *,
        ceilings: Sequence[int | None],
        gains: Gains,
    ) -> None:
        # 1. Each pool, and each domain that scopes cut, gets columns for the groups of its scopes and rows for slots.
        # 2. Every spare has a slot in any domain.
        # 3. The run has one of its sizes, and scopes give no more than their ceilings.
        super().__init__(offer.kinds)
        self.offer, self.request, self.sizes, self.gains = offer, request, sizes, gains
        scopes = range(len(request.scope_names))
        self.whole, self.short, self.pods = ([Sum() for _ in scopes] for _ in range(3))
        self.freed = Sum()
        self.options: list[FreeingOption] = []
        self.nodes: dict[Flow, Sum] = {}
        self._columns = 0
        pooled, cut = self._divided(domains)
        for kind, members in sorted(pooled.items()):
            self._pool(kind, members)
        for domain, kinds in cut:
            self._domain(domain, kinds)
        if request.spares:
            slots = dict(enumerate(offer.slots[list(domains)].sum(axis=0).tolist()))
            spares = (((self.whole[scope] + self.short[scope]) * request.spares) for scope in scopes)
            self.assign_spares(enumerate(spares), slots, request.spares * (sizes.whole[1] + 1))
        self.program.row(total(self.whole), least=sizes.whole[0], most=sizes.whole[1])
        if sizes.short[1]:
            self.program.row(total(self.short), least=min(1, sizes.short[0]), most=1)
            self.program.row(total(self.pods), least=sizes.short[0], most=sizes.short[1])
            self.program.row(total(self.whole) * request.group_pods + total(self.pods), most=sizes.pods)
        self.limit(ceilings)

    def pods_of(self, scope: int) -> Sum:
        """Return the sum of pods and spares of a scope."""
        spares = (self.whole[scope] + self.short[scope]) * self.request.spares
        return self.whole[scope] * self.request.group_pods + self.pods[scope] + spares

    def variable(self, most: int) -> Sum:
        """Add a column from 0 to `most`; raise TooLargeError if there are too many."""
        self._columns += 1
        if self._columns > MAX_COLUMNS:
            raise TooLargeError(
                f"{len(self.offer.inventory.places)} domains and {len(self.request.ceilings)} scopes are too many; "
                "ask for fewer scopes or larger groups"
            )
        return super().variable(most)

    def _divided(self, domains: Sequence[int]) -> tuple[dict[int, list[int]], list[tuple[int, list[int]]]]:
        """Return the domains of each pool, by kind; and those that scopes cut, with the kinds that they share."""
        pooled: dict[int, list[int]] = defaultdict(list)
        cut = []
        for domain, slots in zip(domains, self.offer.slots[list(domains)].tolist(), strict=True):
            here = [kind for kind, count in enumerate(slots) if count or (domain, kind) in self.gains]
            shared = [
                kind for kind in here if any(self.kinds[kind] & self.kinds[other] for other in here if other != kind)
            ]
            for kind in here:
                if kind not in shared:
                    pooled[kind].append(domain)
            if shared:
                cut.append((domain, shared))
        return pooled, cut

    def _groups(self, scopes: Iterable[int], slots: int) -> dict[int, tuple[Sum, Sum]]:
        """Add the groups of some scopes where there are so many slots; return whole ones and pods of the short one."""
        group, found = self.request.group_pods, dict[int, tuple[Sum, Sum]]()
        for scope in sorted(scopes):
            whole, pods = Sum(), Sum()
            if most := min(self.sizes.whole[1], slots // group):
                whole = self.variable(most)
                self.whole[scope].add(whole)
            if most := min(self.sizes.short[1], slots):
                short, pods = self.variable(1), self.variable(most)
                self.program.at_most(pods, short * most)
                self.short[scope].add(short)
                self.pods[scope].add(pods)
            found[scope] = whole, pods
        return found

    def _pool(self, kind: int, domains: Sequence[int]) -> None:
        """Add the groups of a pool: no more whole ones than its domains hold, and a short one beside them."""
        group = self.request.group_pods
        slots = {domain: int(self.offer.slots[domain, kind]) for domain in domains}
        rest = max((slots[domain] % group for domain in domains if (domain, kind) not in self.gains), default=0)
        more, beside = self._options(kind, domains, rest)
        most = sum(slots.values()) + sum(gain for domain in domains for gain, _ in self.gains.get((domain, kind), []))
        groups = self._groups(self.kinds[kind], most).values()
        whole, short = total(some for some, _ in groups), total(pods for _, pods in groups)
        self.taken[kind].add(whole * group + short)
        held = sum(count // group for count in slots.values())
        self.program.row(whole - more, most=held)
        if self.sizes.short[1]:
            # The short group takes what the whole ones leave of a domain, or the place of a whole one.
            self.program.row((whole - more) * group + short - beside, most=group * held + rest)

    def _options(self, kind: int, domains: Sequence[int], rest: int) -> tuple[Sum, Sum]:
        """Add the options of a pool; return the groups that they add, and what one leaves in a domain beyond `rest`."""
        group = self.request.group_pods
        alike: dict[tuple[int, tuple[int, ...]], list[int]] = defaultdict(list)
        for domain in domains:
            if offered := self.gains.get((domain, kind)):
                alike[int(self.offer.slots[domain, kind]) % group, tuple(gain for gain, _ in offered)].append(domain)
        more, beside, lasts = Sum(), Sum(), Sum()
        every = bool(self.request.spares or self.sizes.short[1])
        wanted = self.sizes.pods + (self.sizes.whole[1] + 1) * self.request.spares
        for (free, gains), members in sorted(alike.items()):
            chosen, slots = Sum(), free
            states: list[tuple[Sum | None, int]] = [(None, free)]
            for nodes, gain in enumerate(gains, 1):
                before, slots = slots, slots + gain
                if every or slots // group > before // group:
                    column = self.variable(len(members))
                    self.options.append(FreeingOption(column, nodes, tuple((domain, kind) for domain in members)))
                    self.freed.add(column * nodes)
                    chosen.add(column)
                    more.add(column * (slots // group))
                    self.taken[kind].add(column * (free - slots))
                    states.append((column, slots % group))
                if slots - free >= wanted:
                    break
            self.program.row(chosen, most=len(members))
            for state, left in states if self.sizes.short[1] else ():
                if left > rest:
                    last = self.variable(1)
                    beside.add(last * (left - rest))
                    lasts.add(last)
                    # A domain without freed nodes is a domain without a chosen option.
                    if state is None:
                        self.program.row(last + chosen, most=len(members))
                    else:
                        self.program.at_most(last, state)
        self.program.row(lasts, most=1)
        return more, beside

    def _domain(self, domain: int, kinds: Sequence[int]) -> None:
        """Add a domain in which scopes overlap: its slots flow from kinds of nodes to scopes."""
        freed: dict[int, Sum] = {}
        for kind in kinds:
            gains = [gain for gain, _ in self.gains.get((domain, kind), [])]
            for gain in sorted(set(gains)):
                column = self.nodes[domain, kind, gain] = self.variable(gains.count(gain))
                self.freed.add(column)
                freed[kind] = freed.get(kind, Sum()) + column * gain
        slots = {kind: int(self.offer.slots[domain, kind]) for kind in kinds}
        most = sum(slots.values()) + sum(map(self.program.highest, freed.values()))
        groups = self._groups({scope for kind in kinds for scope in self.kinds[kind]}, most)
        needs = {scope: whole * self.request.group_pods + pods for scope, (whole, pods) in groups.items()}
        self.transport(slots, needs, freed)
