"""The locations of groups as text: domains as bars of comparable length, and groups as ranges with their nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from gkm.api.node_names import fold_sorted
from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Location
from rich.text import Text

from gkm_cli.plan.sheet import Sheet

BAR_WIDTH = 48
_SIGNS = "#+=."
_COLORS = ("green", "cyan", "bright_black", "yellow")
_MEANINGS = ("this plan", "its spares", "used by others", "stranded")


class DomainGpus(NamedTuple):
    """The GPUs of a domain: of the plan's groups, of its spares, used by others, and free."""

    groups: int
    spares: int
    others: int
    free: int

    @property
    def total(self) -> int:
        """Return the sum."""
        return sum(self)


class DomainRow(NamedTuple):
    """A domain of a plan. A domain without groups holds spares only, and strands no GPU."""

    place: Location
    groups: int
    gpus: DomainGpus


def domain_rows(groups: Sequence[Group], inventory: Inventory) -> list[DomainRow]:
    """Return the domains with groups or spares, by location. They count GPUs of usable nodes only."""
    count: Counter[Location] = Counter(group.place for group in groups)
    used: Counter[Location] = Counter()
    spare: Counter[Location] = Counter()
    for group in groups:
        used[group.place] += group.gpus
        for each in group.spares:
            spare[each.place] += each.gpus
    rows = []
    for number, place in enumerate(inventory.places):
        if place in used or place in spare:
            nodes = [inventory.nodes[at] for at in inventory.in_domain(number)]
            others = sum(node.total - node.free for node in nodes)
            rest = sum(node.free for node in nodes) - used[place] - spare[place]
            rows.append(DomainRow(place, count[place], DomainGpus(used[place], spare[place], others, rest)))
    return rows


def cell_gpus(rows: Sequence[DomainRow], width: int) -> int:
    """Return the number of GPUs for one cell, so that the largest domain has at most `width` cells."""
    return max(1, -(-max((row.gpus.total for row in rows), default=1) // max(1, width)))


def cells(parts: DomainGpus, each: int) -> DomainGpus:
    """Return a domain's parts in cells of `each` GPUs.

    A part that is not empty has at least one cell. Rounding preserves the length of the whole domain.
    """
    length = max(-(-parts.total // each), sum(part > 0 for part in parts))
    found = [max(part // each, 1) if part else 0 for part in parts]
    by_rest = sorted(range(len(parts)), key=lambda at: (-(parts[at] % each), at))
    for at in by_rest:
        if sum(found) < length and parts[at] > each:
            found[at] += 1
    while sum(found) > length:
        longest = max(range(len(parts)), key=found.__getitem__)
        found[longest] -= 1
    return DomainGpus(*found)


def render_domains(terminal: Sheet, groups: Sequence[Group], inventory: Inventory) -> None:
    """Print a chart of the domains that groups use."""
    domains = domain_rows(groups, inventory)
    names = _names([row.place for row in domains])
    columns = ("domain", "groups", "", "this", "others", "stranded")
    available_width = terminal.width - max((len(names[row.place]) for row in domains), default=0) - 40
    each = cell_gpus(domains, min(BAR_WIDTH, max(8, available_width)))
    legend = "  ".join(map(" ".join, zip(_SIGNS, _MEANINGS, strict=True)))
    terminal.heading(f"Domains: {legend}; a sign is {f'{each} GPUs' if each > 1 else 'one GPU'}")
    rows = [
        (
            names[row.place],
            row.groups or "spares only",
            _bar(cells(row.gpus, each)),
            row.gpus.groups + row.gpus.spares,
            row.gpus.others,
            row.gpus.free if row.groups else f"none, {row.gpus.free} free",
        )
        for row in domains
    ]
    terminal.table(columns, rows, "domains")


def render_groups(terminal: Sheet, groups: Sequence[Group]) -> None:
    """Print the domain of each group; consecutive groups in one domain share a row."""
    names = _names([group.place for group in groups])
    terminal.heading("Groups")
    terminal.table(("group", "domain", "scope", "nodes", "spares"), list(_ranges(groups, names)), "ranges of groups")


def _bar(cells: DomainGpus) -> Text:
    parts = zip(_SIGNS, cells, _COLORS, strict=True)
    return Text.assemble(*((sign * count, color) for sign, count, color in parts))


def _ranges(groups: Sequence[Group], names: Mapping[Location, str]) -> Iterator[tuple[str, str, str, str, str]]:
    for (place, scope), consecutive in groupby(groups, key=lambda group: (group.place, group.scope)):
        found = list(consecutive)
        first, last = found[0].index, found[-1].index
        nodes = fold_sorted(share.node for group in found for share in group.nodes)
        spares = {spare.node for group in found for spare in group.spares}
        yield str(first) if first == last else f"{first}-{last}", names[place], scope, nodes, fold_sorted(spares)


def _names(locations: Sequence[Location]) -> Mapping[Location, str]:
    """Return short names of locations: without the part that all of them share."""
    level = common_levels(locations)
    return {place: "/".join(place[level:]) for place in locations}


def common_levels(places: Sequence[Location]) -> int:
    """Return the number of leading names that all locations share, not counting the name of the domain."""
    return next((level for level in range(3) if len({place[level] for place in places}) > 1), 2)
