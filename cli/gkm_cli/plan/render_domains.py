"""The locations of groups as text: a chart of domains, and groups as ranges with their nodes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Location

from gkm_cli.plan import domain_chart
from gkm_cli.plan.names import fold_names
from gkm_cli.plan.terminal import Terminal, bar, legend

BAR_WIDTH = 48


def render_domains(terminal: Terminal, groups: Sequence[Group], inventory: Inventory) -> None:
    """Print a chart of the domains that groups use."""
    domains = domain_chart.domain_rows(groups, inventory)
    names = _names([row.place for row in domains])
    columns = ("domain", "groups", "", "this", "others", "stranded")
    available_width = terminal.width - max((len(names[row.place]) for row in domains), default=0) - 40
    each = domain_chart.cell_gpus(domains, min(BAR_WIDTH, max(8, available_width)))
    terminal.heading(f"Domains: {legend(each)}")
    rows = [
        (
            names[row.place],
            row.groups or "spares only",
            bar(domain_chart.cells(row.gpus, each)),
            row.gpus.groups + row.gpus.spares,
            row.gpus.others,
            row.gpus.free if row.groups else f"none, {row.gpus.free} free",
        )
        for row in domains
    ]
    terminal.table(columns, rows, "domains")


def render_groups(terminal: Terminal, groups: Sequence[Group]) -> None:
    """Print the domain of each group; consecutive groups in one domain share a row."""
    names = _names([group.place for group in groups])
    terminal.heading("Groups")
    terminal.table(("group", "domain", "scope", "nodes", "spares"), list(_ranges(groups, names)), "ranges of groups")


def _ranges(groups: Sequence[Group], names: Mapping[Location, str]) -> Iterator[tuple[str, str, str, str, str]]:
    for (place, scope), consecutive in groupby(groups, key=lambda group: (group.place, group.scope)):
        found = list(consecutive)
        first, last = found[0].index, found[-1].index
        nodes = fold_names(share.node for group in found for share in group.nodes)
        spares = {spare.node for group in found for spare in group.spares}
        yield str(first) if first == last else f"{first}-{last}", names[place], scope, nodes, fold_names(spares)


def _names(locations: Sequence[Location]) -> Mapping[Location, str]:
    """Return short names of locations: without the part that all of them share."""
    level = domain_chart.common_levels(locations)
    return {place: "/".join(place[level:]) for place in locations}
