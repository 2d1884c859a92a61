"""The integer programs of runs (calculus.md): one builder, and the two programs that are made with it.

`RunProgram` holds what they share: scopes take slots of the kinds of nodes that they include, spares take slots
anywhere, and scopes have ceilings.

`PlacementModel` places a run that the tables of `domains` do not cover, and a run that has a plan already. Columns hold
the numbers, for each domain and each scope that has nodes there, the whole groups, the short last group, the spares in
the domain of their group (colocated) and the groups of which a spare is elsewhere. Spares that leave their domain take
slots of their scope anywhere; `nodes` decides which. The parts of a plan's cost are sums of columns, and the
objectives.

`Pools` says whether a run fits at all, by counts: small for any number of domains. Domains whose nodes are in the
same scopes are one pool: it holds so many groups in all, and its slots hold pods and spares in sum. Only a domain in
which scopes overlap without being equal has columns of its own. Nodes that may be freed are options of their domain:
the first j, by the slots that they add. Domains that have the same options share one column for each j.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity
from gkm.packing.program import Program, Sum, total
from gkm.packing.values import ORDERS, CostPart, Policy, Request, TooLargeError

Key = tuple[int, int]
"""A domain and a scope, or a domain and a kind of nodes, each by number."""
Flow = tuple[int, int, int]
"""A domain, a kind of nodes and a scope, each by number."""


class RunProgram(ABC):
    """A program that places a run on nodes of some kinds, each with the scopes that take it.

    `taken` has the pods on each kind of nodes, less the slots that freeing adds there.
    """

    def __init__(self, kinds: Sequence[frozenset[int]]) -> None:
        self.program = Program()
        self.kinds = kinds
        self.taken = [Sum() for _ in kinds]

    def variable(self, most: int) -> Sum:
        """Add a column from 0."""
        return self.program.variable(most)

    def transport(self, slots: Mapping[int, int], needs: Mapping[int, Sum], freed: Mapping[int, Sum]) -> dict[Key, Sum]:
        """Give scopes the slots that they need in a domain, of kinds that they include; return them by kind and scope.

        No kind gives more than its slots and those that are `freed`. Scopes that share no kind need no columns.
        """
        takers = [(kind, scope) for kind in slots for scope in sorted(self.kinds[kind]) if scope in needs]
        apart = all(count == 1 for side in zip(*takers, strict=True) for count in Counter(side).values())
        most = {kind: count + self.program.highest(freed.get(kind, {})) for kind, count in slots.items()}
        flows = {(kind, scope): needs[scope] if apart else self.variable(most[kind]) for kind, scope in takers}
        for scope, need in () if apart else needs.items():
            self.program.equal(need, total(flow for (_, of), flow in flows.items() if of == scope))
        for kind, count in slots.items():
            pods = total(flow for (of, _), flow in flows.items() if of == kind) - freed.get(kind, {})
            self.program.row(pods, most=count)
            self.taken[kind].add(pods)
        return flows

    def assign_spares(self, spares: Iterable[tuple[int, Sum]], slots: Mapping[int, int | Sum], most: int) -> None:
        """Give the spares of each scope slots of its kinds, in any domain, beside all pods.

        `slots` are the slots of each kind: a number, or a sum where they depend on the areas that are used.
        """
        guests: dict[int, list[Sum]] = {kind: [] for kind in slots}
        for scope, wanted in spares:
            flows = {kind: self.variable(most) for kind in slots if scope in self.kinds[kind]}
            self.program.equal(wanted, total(flows.values()))
            for kind, flow in flows.items():
                guests[kind].append(flow)
        for kind, limit in slots.items():
            pods = total((*guests[kind], self.taken[kind]))
            if isinstance(limit, int):
                self.program.row(pods, most=limit)
            else:
                self.program.at_most(pods, limit)

    def limit(self, ceilings: Iterable[int | None]) -> None:
        """Limit each scope to its ceiling in pods, None where it gives any number; missing spares take no slots."""
        for scope, most in enumerate(ceilings):
            if most is not None:
                self.program.row(self.pods_of(scope), most=most)

    @abstractmethod
    def pods_of(self, scope: int) -> Sum:
        """Return the pods and spares of a scope."""


class PlacementModel(RunProgram):
    """The program that places the groups of a request: its columns by domain and scope, and sums for objectives.

    With `leave` spares may be in other domains than their groups; with `may_lack` any number of them may lack:
    `lacking` has these by scope. Without `limited` the caller adds the ceilings. Domains that are not `among` these
    take no groups; spares may overflow to them. `flows` has, by domain, kind and scope, the slots that the groups of a
    scope take of a kind, colocated spares included.
    """

    def __init__(
        self,
        capacity: Capacity,
        request: Request,
        *,
        leave: bool,
        may_lack: bool = False,
        limited: bool = True,
        among: Collection[int] | None = None,
    ) -> None:
        # 1. Each domain gets columns for the groups and colocated spares of each scope, and rows for its slots.
        # 2. A block, a cluster and a region are used where one of their domains is.
        # 3. The run has all its groups, in one domain or one area if it has to.
        # 4. Scopes give no more than their ceilings, and every spare that is not colocated has a slot elsewhere.
        super().__init__(capacity.kinds)
        self.capacity, self.request = capacity, request
        self.whole: dict[Key, Sum] = {}
        self.short: dict[Key, Sum] = {}
        self.colocated: dict[Key, Sum] = {}
        self.leaving: dict[Key, Sum] = {}
        self.lacking: dict[int, Sum] = {}
        self.used: dict[CostPart, dict[int, Sum]] = {CostPart.DOMAINS: {}}
        self.flows: dict[Flow, Sum] = {}
        # Spares that stay are part of their group; spares that may leave or lack have their own columns.
        self._apart = bool(request.spares) and (leave or may_lack)
        self._leave, self._may_lack = self._apart and leave and request.may_spread, may_lack
        self._most_whole = request.groups - (self.request.missing_pods > 0)
        self._unit = self.request.group_pods + (0 if self._apart else self.request.spares)
        slots = [{kind: count for kind, count in enumerate(row) if count} for row in capacity.slots.tolist()]
        for domain, offered in enumerate(slots):
            if among is None or domain in among:
                self._domain(domain, offered)
        areas = self._levels()
        self.program.row(total(self.whole.values()), least=self._most_whole, most=self._most_whole)
        if self.request.missing_pods:
            self.program.row(total(self.short.values()), least=1, most=1)
        if not request.may_spread:
            self.program.row(total(self.used[CostPart.DOMAINS].values()), most=1)
        if areas:
            self.program.row(total(areas.values()), most=1)
        if limited:
            self.limit(request.scope_pods)
        if self._apart:
            offers = self._slots_for_spares(slots, areas) if self._leave else {}
            self.assign_spares(self._overflow_spares(), offers, int(capacity.slots.sum()))

    def cost(self, part: CostPart) -> Sum:
        """Return a part of the cost; for stranded GPUs, the free GPUs in used domains before the run."""
        if part is CostPart.SPARES_ELSEWHERE:
            return total(self.leaving.values())
        if part is CostPart.STRANDED:
            free = self.capacity.free.tolist()
            return total(used * free[domain] for domain, used in self.used[CostPart.DOMAINS].items())
        return total(self.used[part].values())

    def costs(self, policy: Policy) -> list[Sum]:
        """Return the objectives of a policy, in order."""
        return [self.cost(part) for part in ORDERS[policy]]

    def groups(self, scope: int | None = None, domain: int | None = None) -> Sum:
        """Return the number of groups of a scope, of a domain or of all, the short one included."""
        return total(
            groups
            for columns in (self.whole, self.short)
            for (at, of), groups in columns.items()
            if scope in {None, of} and domain in {None, at}
        )

    def pods_of(self, scope: int) -> Sum:
        """Return the pods of a scope, spares of its groups included that do not lack."""
        short = total(group for (_, of), group in self.short.items() if of == scope)
        pods = self.groups(scope) * self.request.unit_pods - short * self.request.missing_pods
        return pods - self.lacking.get(scope, {})

    def _domain(self, domain: int, slots: Mapping[int, int]) -> None:
        """Add what a domain can take, and require that it is used where a group is in it."""
        needs: dict[int, Sum] = {}
        for scope in sorted({scope for kind in slots for scope in self.kinds[kind]}):
            reachable = sum(count for kind, count in slots.items() if scope in self.kinds[kind])
            if need := self._groups(domain, scope, reachable):
                needs[scope] = need
        if not needs:
            return
        for (kind, scope), flow in self.transport(slots, needs, {}).items():
            self.flows[domain, kind, scope] = flow
        used = self.used[CostPart.DOMAINS][domain] = self.variable(1)
        if here := total(self.whole.get((domain, scope), {}) for scope in needs):
            self.program.at_most(here, used * min(self._most_whole, sum(slots.values()) // self._unit))
        for scope in needs:
            if (domain, scope) in self.short:
                self.program.at_most(self.short[domain, scope], used)

    def _groups(self, domain: int, scope: int, slots: int) -> Sum:
        """Add the columns of a scope in a domain; return how many slots they need there."""
        request, key, need, groups = self.request, (domain, scope), Sum(), Sum()
        if most := min(self._most_whole, slots // self._unit):
            whole = self.whole[key] = self.variable(most)
            need, groups = need + whole * self._unit, groups + whole
        if request.missing_pods and slots >= self._unit - request.missing_pods:
            short = self.short[key] = self.variable(1)
            need, groups = need + short * (self._unit - request.missing_pods), groups + short
        if need and self._apart:
            home = self.colocated[key] = self.variable(slots)
            self.program.at_most(home, groups * request.spares)
            if self._leave:
                away = self.leaving[key] = self.variable(request.groups)
                # The spares that leave belong to as few groups as possible.
                self.program.at_most(groups * request.spares, home + away * request.spares)
            need += home
        return need

    def _levels(self) -> dict[tuple[str, ...], Sum]:
        """Add which blocks, clusters and regions are used; return the columns of areas of which the run uses one."""
        found: dict[tuple[str, ...], Sum] = {}
        for part, depth in ((CostPart.BLOCKS, 3), (CostPart.CLUSTERS, 2), (CostPart.REGIONS, 1)):
            areas: dict[tuple[str, ...], Sum] = {}
            for domain, used in self.used[CostPart.DOMAINS].items():
                area = self.capacity.inventory.places[domain][:depth]
                if area not in areas:
                    areas[area] = self.variable(1)
                self.program.at_most(used, areas[area])
            self.used[part] = dict(enumerate(areas.values()))
            if self.request.within and self.request.depth == depth:
                found = areas
        return found

    def _slots_for_spares(
        self, slots: Sequence[Mapping[int, int]], areas: Mapping[tuple[str, ...], Sum]
    ) -> dict[int, int | Sum]:
        """Return the slots of each kind of nodes: all, or the slots of the area that the run uses."""
        if not areas:
            return dict(enumerate(self.capacity.slots.sum(axis=0).tolist()))
        of_areas: list[Counter[tuple[str, ...]]] = [Counter() for _ in self.kinds]
        for place, offered in zip(self.capacity.inventory.places, slots, strict=True):
            for kind, count in offered.items():
                of_areas[kind][place[: self.request.depth]] += count
        return {
            kind: total(used * counts[area] for area, used in areas.items()) for kind, counts in enumerate(of_areas)
        }

    def _overflow_spares(self) -> Iterable[tuple[int, Sum]]:
        """Yield the spares of each scope that are not colocated and have a slot all the same."""
        for scope in range(len(self.request.scope_names)):
            homes = total(home for (_, of), home in self.colocated.items() if of == scope)
            away = self.groups(scope) * self.request.spares - homes
            if self._may_lack:
                self.lacking[scope] = self.variable(self.request.groups * self.request.spares)
                away -= self.lacking[scope]
            yield scope, away


MAX_COLUMNS = 100_000
"""Columns that a program has at most: about a second."""

Gains = dict[Key, list[tuple[int, int]]]
"""Nodes that may be freed: what each adds in slots, the largest first, and its number in the inventory."""


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
        """Return all sizes below the size of a request."""
        pods = request.gpus // request.pod_gpus - 1
        return cls((0, pods // request.group_pods), (0, min(pods, request.group_pods - 1)), pods)


class FreeingOption(NamedTuple):
    """Freeing so many nodes in each of some domains of one pool: how many do it is the value of the column."""

    column: Sum
    nodes: int
    domains: tuple[Key, ...]


class Pools(RunProgram):
    """The program of a run in some domains, and its sums by scope: whole groups, short groups and the pods of these.

    `ceilings` are in pods, None where a scope gives any number. `freed` counts the nodes that are freed; `options` and
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
        """Return the pods and spares of a scope."""
        spares = (self.whole[scope] + self.short[scope]) * self.request.spares
        return self.whole[scope] * self.request.group_pods + self.pods[scope] + spares

    def variable(self, most: int) -> Sum:
        """Add a column from 0, if there are not too many."""
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
