"""Rules for each area of a level, worked out again: docs/reference/calculus.md, Rules for each area.

It shares the values of `gkm.packing` and nothing else with the planner. Each node that may be used is a variable of the
programs, and each group of a run that has a plan has one for each domain: no kinds of nodes, no counts of layers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from gkm.packing.values import AreaRule, Group, Level, Location, Node, Policy, Request
from support.packing.costs import ORDERS, Cost
from support.packing.reference import Expression, IntegerProgram, Program

DEPTHS = {Level.REGION: 1, Level.CLUSTER: 2, Level.BLOCK: 3, Level.DOMAIN: 4}
Area = tuple[str, ...]


def areas(nodes: Sequence[Node], level: Level) -> dict[Location, Area]:
    """Return the area of each domain; a domain in no single known rack has none."""
    places = {node.place for node in nodes}
    if level is not Level.RACK:
        return {place: place[: DEPTHS[level]] for place in places}
    racks = {place: {node.rack for node in nodes if node.place == place} for place in places}
    return {place: (*place[:2], *names) for place, names in racks.items() if len(names) == 1 and names != {""}}


def located(nodes: Sequence[Node], request: Request) -> list[Node]:
    """Return the nodes whose domains have an area at each level that has a rule."""
    known = [areas(nodes, rule.level) for rule in request.per_area]
    return [node for node in nodes if all(node.place in some for some in known)]


def broken_rules(nodes: Sequence[Node], request: Request, groups: Sequence[Group]) -> Iterator[str]:
    """Yield which rules groups break."""
    places = {node.name: node.place for node in nodes}
    for rule in request.per_area:
        of = areas(nodes, rule.level)
        where = {group.index: of.get(group.place, ()) for group in groups}
        if () in where.values():
            yield f"a group is in no known {rule.level}"
        if rule.max_groups and max(Counter(where.values()).values()) > rule.max_groups:
            yield f"more than {rule.max_groups} groups in a {rule.level}"
        used = {share.node for group in groups for share in group.shares}
        if rule.max_nodes and max(Counter(of[places[name]] for name in used).values()) > rule.max_nodes:
            yield f"more than {rule.max_nodes} nodes in a {rule.level}"
        for first in range(0, len(groups), rule.multiple) if rule.multiple > 1 else ():
            if len({where[index] for index in range(first, first + rule.multiple)}) > 1:
                yield f"groups {first} to {first + rule.multiple - 1} are in several areas of the level {rule.level}"


def least_cost(nodes: Sequence[Node], request: Request) -> Cost | None:
    """Return the cost of the best plan of a run without scopes; None where it does not fit.

    Raises:
        UnprovenError: the case is too large for HiGHS.
    """
    nodes = located(nodes, request)
    if not nodes:
        return None
    program = IntegerProgram(nodes, request)
    model, total = program.model, program.total
    used = {node.name: model.addBinary() for node in nodes}
    for (place, _), taken in program.taken.items():
        slots = [node.free // request.pod_gpus * used[node.name] for node in nodes if node.place == place]
        model.addConstr(taken <= total(slots))
    for rule in request.per_area:
        for here in _by_area(nodes, rule).values():
            homes = [home for home in program.homes if home[0] in here]
            groups = total(program.whole[home] + program.last[home] for home in homes)
            if rule.max_groups:
                model.addConstr(groups <= rule.max_groups)
            if rule.max_nodes:
                model.addConstr(total(used[node.name] for node in nodes if node.place in here) <= rule.max_nodes)
            model.addConstr(groups == rule.multiple * model.addIntegral(lb=0, ub=request.groups))
    order = ORDERS[request.policy]
    found = program.least([program.costs[name] for name in order])
    return None if found is None else Cost(**dict(zip(order, found, strict=True)))


def _by_area(nodes: Sequence[Node], rule: AreaRule) -> Mapping[Area, list[Location]]:
    found: dict[Area, list[Location]] = defaultdict(list)
    for place, area in areas(nodes, rule.level).items():
        found[area].append(place)
    return found


def drawn(seed: int) -> tuple[tuple[Node, ...], Request]:
    """Return the nodes and the run of a seed: 2 to 8 domains in racks, blocks and clusters, and one to three rules."""
    chance = Random(f"rules {seed}")
    nodes: list[Node] = []
    wide = chance.choice((1, 1, 2, 3))
    for domain in range(chance.randint(2, 8)):
        cluster, block = chance.randrange(2), chance.randrange(2)
        place = Location("r", f"c{cluster}", f"b{block}", f"d{domain}")
        rack = chance.choice((f"k{block}0", f"k{block}1", f"k{domain}x", f"k{domain}x", ""))
        total = chance.choice((1, 2, 4, 4))
        for number in range(chance.randint(1, 2 + wide)):
            free = chance.choice((total, total, chance.randint(0, total)))
            nodes.append(Node(f"n{domain}-{number}", place, total, free, rack=rack))
    rules = _rules(chance)
    outer = max(rule.multiple for rule in rules)
    pods, spares = chance.choice((1, 2, 2, 3)), chance.choice((0, 0, 0, 1))
    slots = sum(node.free for node in nodes)
    most = max(1, slots // (pods + spares))
    groups = max(1, chance.choice((most, most * 3 // 4, most // 2, most // 3)) // outer) * outer
    short = chance.randint(0, pods - 1) if outer == 1 and chance.random() < 0.4 else 0
    policy, spread = chance.choice(list(Policy)), chance.random() < 0.9
    return tuple(nodes), Request(groups * pods - short, 1, pods, spares, spread, policy, per_area=rules)


def _rules(chance: Random) -> tuple[AreaRule, ...]:
    found: dict[Level, AreaRule] = {}
    inner = chance.choice((1, 1, 2, 3))
    outer = inner * chance.choice((1, 1, 2))
    for level in (Level.DOMAIN, Level.RACK, Level.BLOCK, Level.CLUSTER):
        multiple = {Level.BLOCK: inner, Level.CLUSTER: outer}.get(level, 1)
        most_groups = chance.randint(1, 3) if chance.random() < 0.25 else None
        most_nodes = chance.randint(1, 4) if chance.random() < 0.25 else None
        if multiple > 1 or most_groups or most_nodes:
            found[level] = AreaRule(level, most_groups, most_nodes, multiple)
    return tuple(found.values()) or (AreaRule(Level.RACK, max_groups=1),)


class Moves(Program):
    """A run that has a plan, on the nodes that are left: a variable for each group and domain.

    The groups of `stay` are on their nodes. Every group of the run is in the former plan, and has so many `spares`.
    """

    def __init__(
        self, nodes: Sequence[Node], former: Sequence[Group], request: Request, stay: Sequence[Group], spares: int
    ) -> None:
        super().__init__()
        self.nodes, self.former, self.request = located(nodes, request), former, request
        self.places = sorted({node.place for node in self.nodes})
        self.at = {(group.index, place): self.model.addBinary() for group in former for place in self.places}
        self.used = {node.name: self.model.addBinary() for node in self.nodes}
        for group in former:
            self.model.addConstr(self._groups([group], self.places) == 1)
        for group in stay:
            self.model.addConstr(self._groups([group], [group.place]) == 1)
        self._give_slots(stay, spares)
        if not request.may_spread:
            self._stay_in_one_domain()
        for rule in request.per_area:
            for here in _by_area(self.nodes, rule).values():
                self._keep(rule, here)

    def fewest(self) -> int | None:
        """Return the fewest groups that change their domain; None where the run does not fit."""
        found = self.least([self.total(-1 * self._groups([group], [group.place]) for group in self.former)])
        return None if found is None else len(self.former) + found[0]

    def _groups(self, groups: Sequence[Group], places: Sequence[Location]) -> Expression:
        """Return how many of some groups are in some domains."""
        columns = [self.at.get((group.index, place)) for group in groups for place in places]
        return self.total(column for column in columns if column is not None)

    def _give_slots(self, stay: Sequence[Group], spares: int) -> None:
        least = Counter[str]()
        for group in stay:
            least.update(dict(group.nodes))
        pods = {node.name: self.model.addIntegral(lb=least[node.name], ub=node.free) for node in self.nodes}
        ready = {node.name: self.model.addIntegral(lb=0, ub=node.free) for node in self.nodes}
        for node in self.nodes:
            self.model.addConstr(pods[node.name] + ready[node.name] - node.free * self.used[node.name] <= 0)
        for place in self.places:
            here = self.total(pods[node.name] for node in self.nodes if node.place == place)
            self.model.addConstr(here - self.total(g.gpus * self.at[g.index, place] for g in self.former) == 0)
        self.model.addConstr(self.total(ready.values()) == spares * len(self.former))

    def _stay_in_one_domain(self) -> None:
        homes = {place: self.model.addBinary() for place in self.places}
        self.model.addConstr(self.total(homes.values()) <= 1)
        for node in self.nodes:
            self.model.addConstr(self.used[node.name] - homes[node.place] <= 0)

    def _keep(self, rule: AreaRule, here: Sequence[Location]) -> None:
        if rule.max_groups:
            self.model.addConstr(self._groups(self.former, here) <= rule.max_groups)
        if rule.max_nodes:
            used = self.total(self.used[node.name] for node in self.nodes if node.place in here)
            self.model.addConstr(used <= rule.max_nodes)
        for group in self.former if rule.multiple > 1 else ():
            first = self.former[group.index // rule.multiple * rule.multiple]
            self.model.addConstr(self._groups([group], here) - self._groups([first], here) == 0)
