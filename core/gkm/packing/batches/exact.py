"""A small batch as one integer program: every group of every run in a domain, what fits decided for all together.

The nodes of a domain that the same runs may use, in the same scopes, are one class. Pods of several sizes take slots
of each size b that a class is counted in, a pod of p GPUs floor(p / b) of them. Where each size divides the next this
is all there is to nodes: whatever the counts allow can be placed, the largest pods first. Else it is a bound.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gkm.packing.batches.instance import Instance
from gkm.packing.batches.relaxation import Relaxation
from gkm.packing.errors import TooLargeError
from gkm.packing.program import Program, SearchLimits, Solution, Terms, weighted
from gkm.packing.values import Request, Share

MAX_RUNS, MAX_DOMAINS = 64, 200
_NODES = 1_000
"""Nodes of the search by priority."""

Taker = tuple[int, int]
"""A run and a scope of it; or, where no scope and no other size of a run matters, SHARED and the nodes of the run."""
SHARED = -1
_Class = tuple[int, frozenset[Taker]]
"""A domain, and who may use its nodes."""
_Items = tuple[Taker, int, int]
"""Whose items, the GPUs of a pod, and the pods of an item: 0 for whatever a single run has in a domain."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The most GPUs of each level, given what the higher ones reached, and their bounds.

    `shares` are the GPUs of each run that is admitted, by node; None where pods do not fit as their counts allow.
    """

    reached: tuple[int, ...]
    bounds: tuple[int, ...]
    shares: Mapping[int, Sequence[Share]] | None
    cut_short: bool


def exact(instance: Instance, relaxed: Relaxation, seconds: float) -> Exact | None:
    """Return the best batch, None where the batch is too large for it."""
    runs = [run for level in relaxed.levels for run in level]
    if not 1 <= len(runs) <= MAX_RUNS or len(instance.union.places) > MAX_DOMAINS:
        return None
    limits = SearchLimits.within(seconds, _NODES)
    builder = _Builder(instance, relaxed, runs)
    objectives = [weighted(*((-1, builder.gpus[run]) for run in level)) for level in relaxed.levels]
    try:
        solved = builder.program.solve(objectives, limits)
    except TooLargeError:
        return None
    if solved is None:
        raise AssertionError("a batch of no runs is a solution")
    reached, bounds = (tuple(-value for value in values) for values in (solved.reached, solved.bounds))
    return Exact(reached, bounds, builder.shares(solved), solved.cut_short)


class _Builder:
    """`gpus` are those of each run, `flows` the pods and spares of each taker on each class of nodes."""

    def __init__(self, instance: Instance, relaxed: Relaxation, runs: Sequence[int]) -> None:
        self.program = Program()
        self.instance, self.nodes = instance, instance.union
        self.requests = {run: instance.runs[run].request for run in runs}
        self.admitted = {run: self.program.column(1) for run in runs}
        self.gpus: dict[int, Terms] = {}
        self.flows: dict[tuple[_Class, _Items], Terms] = {}
        # By items and domain, how many there are; and by items, how many copies each run has.
        self.counts: dict[tuple[_Items, int], int] = {}
        self.copies: dict[_Items, dict[int, int]] = defaultdict(dict)
        self.classes = self._classes()
        self.here: dict[tuple[int, Taker], list[_Class]] = defaultdict(list)
        for of in self.classes:
            for taker in sorted(of[1]):
                self.here[of[0], taker].append(of)
        for run, request in self.requests.items():
            if self._shared(run):
                self.gpus[run] = {self.admitted[run]: request.gpus}
                for item in relaxed.demands[run].items:
                    copies = self.copies[(SHARED, instance.uses[run]), request.pod_gpus, item.pods]
                    copies[run] = copies.get(run, 0) + item.copies
            else:
                self._run(run, request)
        for items, copies in self.copies.items():
            self._share(items, copies)
        self._capacities()
        for cut in relaxed.cuts:
            # They follow from the rest, and shorten the search.
            self.program.row({self.admitted[run]: cut.base[run] for run in runs if cut.base[run]}, most=cut.capacity)

    def _shared(self, run: int) -> bool:
        """Return whether what a run needs is a number of items, each in one domain, whatever scope that is in."""
        return not self.requests[run].ceilings and self.requests[run].malleability is None

    def _classes(self) -> dict[_Class, list[int]]:
        """Return the nodes of each class, by their numbers in the inventory of all."""
        takers: dict[str, set[Taker]] = defaultdict(set)
        for run, request in self.requests.items():
            use = self.instance.uses[run]
            scopes = {ceiling.scope: number for number, ceiling in enumerate(request.ceilings)}
            for node in self.instance.inventories[use].nodes:
                if self._shared(run):
                    takers[node.name].add((SHARED, use))
                elif scopes:
                    takers[node.name] |= {(run, scopes[scope]) for scope in node.scopes & scopes.keys()}
                else:
                    takers[node.name].add((run, 0))
        found: dict[_Class, list[int]] = defaultdict(list)
        for domain in range(len(self.nodes.places)):
            for number in self.nodes.in_domain(domain):
                found[domain, frozenset(takers[self.nodes.nodes[number].name])].append(number)
        return found

    def _slots(self, of: _Class, gpus: int) -> int:
        return sum(self.nodes.nodes[number].free // gpus for number in self.classes[of])

    def _share(self, items: _Items, copies: Mapping[int, int]) -> None:
        """Add items that several runs may have, by domain."""
        program, (taker, gpus, pods) = self.program, items
        columns = {}
        for (domain, of), classes in self.here.items():
            most = min(sum(copies.values()), sum(self._slots(each, gpus) for each in classes) // pods)
            if of == taker and most:
                column = self.counts[items, domain] = program.column(most)
                columns[column] = 1
                self._flow({column: pods}, items, classes)
        admitted = {self.admitted[run]: count for run, count in copies.items()}
        program.row(weighted((1, columns), (-1, admitted)), least=0, most=0)

    def _run(self, run: int, request: Request) -> None:
        """Add a run that is admitted in one of its sizes, or not, with its groups by domain and scope."""
        program, pod, group = self.program, request.pod_gpus, request.group_pods
        admitted, pods = self.admitted[run], request.gpus // pod
        step, count = request.size_step // pod, request.size_steps
        smaller = program.column(count)
        program.row({smaller: 1, admitted: -count}, most=0)
        size = weighted((pods, {admitted: 1}), (-step, {smaller: 1}))
        self.gpus[run] = weighted((pod, size))
        groups: dict[int, dict[int, int]] = defaultdict(dict)
        spares: dict[int, dict[int, int]] = defaultdict(dict)
        needs: dict[tuple[int, int], dict[int, int]] = {}
        lasts: dict[int, int] = {}
        for (domain, (of, scope)), classes in self.here.items():
            if of != run:
                continue
            slots = sum(self._slots(each, pod) for each in classes)
            whole, last = program.column(min(slots // group, request.groups)), program.column(1)
            rest, spare = program.column(min(slots, group - 1)), program.column(slots if request.spares else 0)
            program.row({rest: 1, last: 1 - group}, most=0)
            groups[scope] |= {whole: 1, last: 1}
            spares[scope][spare] = lasts[last] = 1
            needs[domain, scope] = {whole: group, rest: 1, spare: 1}
            if not request.may_spread:
                program.row({spare: 1, whole: -request.spares, last: -request.spares}, least=0, most=0)
            self._flow(needs[domain, scope], ((run, scope), pod, 0), classes)
        program.row(weighted((1, lasts), (-1, {admitted: 1})), most=0)
        every = weighted(*((1, need) for need in needs.values()), *((-1, terms) for terms in spares.values()))
        program.row(weighted((1, every), (-1, size)), least=0, most=0)
        for scope, terms in groups.items():
            program.row(weighted((1, spares[scope]), (-request.spares, terms)), least=0, most=0)
        for scope, ceiling in enumerate(request.ceilings):
            given = weighted(*((1, need) for (_, of), need in needs.items() if of == scope))
            program.row(given, most=ceiling.gpus // pod)
        if not request.may_spread:
            self._single_domain(needs)

    def _single_domain(self, needs: Mapping[tuple[int, int], Terms]) -> None:
        used: dict[int, int] = {}
        for domain in sorted({domain for domain, _ in needs}):
            column = self.program.column(1)
            here = weighted(*((1, need) for (of, _), need in needs.items() if of == domain))
            most = sum(self.nodes.nodes[number].free for number in self.nodes.in_domain(domain))
            self.program.row(weighted((1, here), (-most, {column: 1})), most=0)
            used[column] = 1
        self.program.row(used, most=1)

    def _flow(self, need: Terms, items: _Items, classes: Sequence[_Class]) -> None:
        """Divide what a taker has in a domain over the classes of nodes that it may use there."""
        if len(classes) == 1:
            self.flows[classes[0], items] = need
            return
        columns = {of: self.program.column(self._slots(of, items[1])) for of in classes}
        self.program.row(weighted((1, need), (-1, dict.fromkeys(columns.values(), 1))), least=0, most=0)
        self.flows |= {(of, items): {column: 1} for of, column in columns.items()}

    def _capacities(self) -> None:
        """Require that what is on a class of nodes is no more than its slots, counted in pods of each size."""
        taken: dict[_Class, list[tuple[int, Terms]]] = defaultdict(list)
        for (of, (_, gpus, _)), pods in self.flows.items():
            taken[of].append((gpus, pods))
        for of, each in taken.items():
            for size in sorted({gpus for gpus, _ in each} | {1}):
                self.program.row(weighted(*((gpus // size, pods) for gpus, pods in each)), most=self._slots(of, size))

    def shares(self, solved: Solution) -> dict[int, list[Share]] | None:
        """Return the GPUs of each node that a solution gives to each run, None where pods do not fit so."""
        left = [node.free for node in self.nodes.nodes]
        # The pods of the items of each domain, each by its node.
        placed: dict[tuple[_Items, int], list[Share]] = defaultdict(list)
        for (of, items), terms in sorted(self.flows.items(), key=lambda one: -one[0][1][1]):
            gpus, pods = items[1], solved.of(terms)
            for number in self.classes[of]:
                here = min(pods, left[number] // gpus)
                placed[items, of[0]] += [Share(self.nodes.nodes[number].name, gpus)] * here
                left[number] -= here * gpus
                pods -= here
            if pods:
                return None
        found: dict[int, list[Share]] = {run: [] for run, column in self.admitted.items() if solved.values[column]}
        for (items, _), shares in placed.items():
            if items[0][0] != SHARED and shares:
                found[items[0][0]] += shares
        for items, copies in self.copies.items():
            runs = [run for run, count in copies.items() if run in found for _ in range(count)]
            for (counted, domain), column in self.counts.items():
                for _ in range(solved.values[column] if counted == items else 0):
                    found[runs.pop()] += [placed[items, domain].pop() for _ in range(items[2])]
        return found
