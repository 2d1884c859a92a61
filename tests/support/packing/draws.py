"""Random planning cases from a seed: small trees, tight runs, scopes that overlap, spares and short groups together.

A draw is a pure function of its seed: it shares the values of `gkm.packing` and nothing else with the planner. Every
choice is weighted towards what is tight, since a run with ample capacity has no corner: sizes lie around what is
free, and ceilings around a random division of the run among its scopes.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from gkm.packing.values import MAX_GPUS, Ceiling, Location, Node, Policy, Request
from support.packing.draws_placement import placed

MOST_DOMAINS, MOST_NODES, MOST_GROUPS = 14, 6, 24
"""Of an inventory, of a domain, of a run."""


@dataclass(frozen=True)
class Draw:
    """Nodes, and a run to plan on them."""

    nodes: tuple[Node, ...]
    request: Request


def drawn(seed: int) -> Draw:
    """Return the case of a seed."""
    chance = Random(f"draw {seed}")
    if chance.random() < 0.3:
        return _divided(chance)
    names = scope_names(chance)
    nodes = inventory(chance, names)
    return Draw(nodes, request(chance, nodes, names))


def _divided(chance: Random) -> Draw:
    """Return a run with a short last group in two scopes that overlap, which share it as dice say and not as nodes do.

    These runs have the corners of a table with two axes: here a plan must often take less than a domain has.
    """
    names = ("s0", "s1")
    nodes = inventory(chance, names, most_domains=5)
    pods, spares = chance.choice((2, 2, 3)), chance.choice((0, 0, 0, 1))
    most = min(10, most_groups(nodes, names, 1, pods, spares, spread=True))
    groups = chance.randint(max(1, most // 2), max(1, most))
    unit, short = pods + spares, chance.randint(1, pods - 1)
    first = chance.randint(0, groups) * unit
    parts = [first, groups * unit - first]
    lacks = chance.randrange(2)
    parts[lacks] = max(0, parts[lacks] - short)
    parts[1] += chance.choice((0, chance.randint(0, unit), chance.randint(0, 3) * unit))
    ceilings = tuple(Ceiling(name, part) for name, part in zip(names, parts, strict=True))
    policy = chance.choice(list(Policy))
    return Draw(nodes, Request(groups * pods - short, 1, pods, spares, policy=policy, ceilings=ceilings))


def scope_names(chance: Random) -> tuple[str, ...]:
    """Return the names of 0 to 3 scopes."""
    return ("s0", "s1", "s2")[: chance.choice((0, 0, 1, 2, 2, 2, 2, 3))]


def inventory(chance: Random, names: Sequence[str], most_domains: int = MOST_DOMAINS) -> tuple[Node, ...]:
    """Return 1 to 14 domains of 1 to 6 nodes, in any order; nodes are in some of the named scopes, or in none."""
    count = min(most_domains, chance.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 10, chance.randint(6, MOST_DOMAINS))))
    most_nodes = chance.choice((1, 1, 2, 2, 3, 4, MOST_NODES))
    total = chance.choice((None, None, 1, 2, 4, 8, 8, 9))
    by_node = chance.random() < 0.3
    found: list[Node] = []
    for domain, place in enumerate(_places(chance, count)):
        alike = _scopes(chance, names)
        for number in range(chance.randint(1, most_nodes)):
            gpus = chance.randint(1, 12) if total is None else total
            found.append(
                Node(
                    name=f"n{domain:02}{number}",
                    place=place,
                    total=gpus,
                    free=chance.choice((gpus, gpus, chance.randint(0, gpus))),
                    scopes=_scopes(chance, names) if by_node else alike,
                )
            )
    chance.shuffle(found)
    return tuple(found)


def _places(chance: Random, count: int) -> list[Location]:
    """Return domains in few blocks, clusters and regions. The name of a block may be there in several clusters."""
    shapes = ((1, 1, 1), (1, 1, 2), (1, 1, 4), (1, 2, 2), (2, 1, 2), (2, 2, 2), (3, 2, 1))
    regions, clusters, blocks = chance.choice(shapes)
    return [
        Location(
            f"r{chance.randrange(regions)}",
            f"c{chance.randrange(clusters)}",
            f"b{chance.randrange(blocks)}",
            f"d{domain:02}",
        )
        for domain in range(count)
    ]


def _scopes(chance: Random, names: Sequence[str]) -> frozenset[str]:
    """Return some of the scopes: mostly one or two, seldom none or all."""
    if not names:
        return frozenset()
    return frozenset(chance.sample(names, min(len(names), chance.choice((0, 1, 1, 1, 1, 2, 2, 2, 3)))))


def request(chance: Random, nodes: Sequence[Node], names: Sequence[str]) -> Request:
    """Return a run that takes between a third of the usable slots and a little more than all of them."""
    may_spread = chance.random() < 0.85
    for _ in range(4):
        pod = chance.choice((1, 1, 1, 1, 2, 3, 4, 8))
        group_pods, spares = chance.choice((1, 2, 2, 2, 3, 3, 4, 5)), chance.choice((0, 0, 0, 1, 1, 2, 3))
        most = min(MOST_GROUPS, most_groups(nodes, names, pod, group_pods, spares, spread=may_spread))
        if most > 2:  # a run of one or two groups has few corners
            break
    groups = max(
        1, chance.choice((most, most, most, most + 1, most - 1, most * 4 // 5, most * 4 // 5, chance.randint(0, most)))
    )
    short = chance.randint(1, group_pods - 1) if group_pods > 1 and chance.random() < 0.6 else 0
    run = Request(
        gpus=(groups * group_pods - short) * pod,
        pod_gpus=pod,
        group_gpus=group_pods * pod,
        spares=spares,
        may_spread=may_spread,
        policy=chance.choice(list(Policy)),
        ceilings=tuple(Ceiling(name, MAX_GPUS) for name in names),
    )
    return _with_ceilings(chance, nodes, run) if names else run


def most_groups(
    nodes: Iterable[Node], names: Sequence[str], pod: int, group_pods: int, spares: int, *, spread: bool
) -> int:
    """Return how many groups fit on the nodes that some scope takes, ceilings apart; without spread in one domain."""
    slots: Counter[Location] = Counter()
    for node in nodes:
        if not names or node.scopes & set(names):
            slots[node.place] += node.free // pod
    unit = group_pods + spares
    if not spread:
        return max(slots.values(), default=0) // unit
    return min(sum(count // group_pods for count in slots.values()), sum(slots.values()) // unit)


def _with_ceilings(chance: Random, nodes: Sequence[Node], run: Request) -> Request:
    """Return a run with ceilings around what a placement by dice takes of each scope: half of them exactly that."""
    groups = placed(chance, nodes, run)
    given: Counter[str] = Counter()
    for group in groups:
        given[group.scope] += group.gpus + run.spares * run.pod_gpus
    unit = run.group_gpus + run.spares * run.pod_gpus
    exact = chance.random() < 0.5
    found = []
    for ceiling in run.ceilings:
        slack = 0 if exact else chance.choice((0, chance.randint(0, unit), chance.randint(0, 3) * unit, run.gpus))
        lacking = chance.choice((1, run.pod_gpus, unit)) if chance.random() < 0.05 else 0
        found.append(Ceiling(ceiling.scope, max(0, given[ceiling.scope] + slack - lacking)))
    fitting = sum(group.gpus for group in groups)
    gpus = fitting if fitting and chance.random() < 0.85 else run.gpus
    return replace(run, gpus=gpus, ceilings=tuple(found))
