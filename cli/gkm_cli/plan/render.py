"""The result for one run as text: verdict, chart of domains, groups, other policies, the remaining GPUs, reasons.

Domains are bars of comparable length, and groups are ranges with their nodes. Results are printed on a sheet: a
terminal, a pipe, or a page.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from gkm.api.grammar import agree, count_of
from gkm.api.node_names import fold_sorted
from gkm.packing.conversion import plan_fragmentation
from gkm.packing.explanation import Alternative
from gkm.packing.fragmentation import Fragmentation
from gkm.packing.inventory import Inventory
from gkm.packing.usable_nodes import UsableNodes
from gkm.packing.values import Group, Location, Plan, Policy, Refusal, Replanned
from gkm.topology.eligibility import LACKING
from gkm.topology.quarantine import Quarantined
from rich.text import Text

from gkm_cli.plan.single_run import RunDecision
from gkm_cli.terminal import Sheet

MAX_QUARANTINED = 8
MAX_FRAGMENTED = 8
_COMPARED = {
    Policy.FEWEST_DOMAINS: "uses fewer domains",
    Policy.FEWEST_BLOCKS: "uses fewer blocks",
    Policy.LEAST_WASTE: "strands fewer GPUs",
}
BAR_WIDTH = 48
_SIGNS = "#+=."
_COLORS = ("green", "cyan", "bright_black", "yellow")
_MEANINGS = ("this plan", "its spares", "used by others", "stranded")


def render_run(terminal: Sheet, decision: RunDecision, notes: Sequence[str]) -> None:
    """Print the result of `gkm plan` for one run."""
    outcome = decision.outcome
    if isinstance(outcome, Refusal):
        refusal(terminal, decision.run.qualified_name, outcome)
        if decision.fixes:
            terminal.heading("Each of these alone would make it fit:")
            terminal.numbered(fix.sentence for fix in decision.fixes)
    else:
        _plan(terminal, decision, outcome)
    _unused(terminal, decision.usable)
    render_notes(terminal, [*decision.omitted_fixes, *notes])


def captions(decision: RunDecision) -> list[str]:
    """Return the result for one run in sentences: its verdict, the other policies, or what would make it fit."""
    outcome, name = decision.outcome, decision.run.qualified_name
    if isinstance(outcome, Refusal):
        fixes = [f"{number}. {fix.sentence}" for number, fix in enumerate(decision.fixes, 1)]
        return [
            f"{name} does not fit: {outcome.message}",
            *(["Each of these alone would make it fit:"] if fixes else []),
            *fixes,
        ]
    compared = decision.explanation.alternatives if decision.explanation else ()
    return [f"{name} fits: {verdict(outcome, again=decision.replanned is not None)}", *map(_alternative, compared)]


def _alternative(each: Alternative) -> str:
    figures = each.metrics
    if figures is None:
        return f"{each.policy.value}: {each.problem}"
    return (
        f"{each.policy.value}{' (this plan)' if each.chosen else ''}: {count_of(figures.domains, 'domain')}, "
        f"{count_of(figures.blocks, 'block')}, {count_of(figures.stranded_gpus, 'GPU')} stranded"
    )


def refusal(terminal: Sheet, name: str, refused: Refusal) -> None:
    """Print why the planner refused a run."""
    terminal.line(f"{name} does not fit: {refused.message}", "bold red")
    terminal.line(f"level {refused.level.value}; largest that fits: {count_of(refused.largest_groups, 'whole group')}")


def verdict(plan: Plan, *, again: bool = False) -> str:
    """Return size and quality of a plan in one sentence; `again`: the run had a plan before."""
    figures, request = plan.metrics, plan.request
    sizes = f"{count_of(len(plan.groups), 'group')} of {count_of(request.group_gpus, 'GPU')}"
    if plan.gpus % request.group_gpus:
        sizes += " (the last smaller)"
    smaller = f" instead of {request.gpus}" if plan.gpus < request.gpus else ""
    where = f"{count_of(figures.domains, 'domain')} of {count_of(figures.blocks, 'block')}"
    spares = f", {count_of(request.spares, 'spare pod')} a group" if request.spares else ""
    gpus, stranded = count_of(plan.gpus, "GPU"), count_of(figures.stranded_gpus, "GPU")
    proof = _proof(plan, again=again)
    return f"{sizes}, {gpus}{smaller}{spares}, in {where}; {stranded} stranded; gap {figures.gap}{proof}"


def render_quarantined(terminal: Sheet, entries: Sequence[Quarantined]) -> None:
    """Print the quarantined nodes with their reasons."""
    if entries:
        terminal.heading(f"Quarantined, {count_of(len(entries), 'node')}: no run uses them until this is corrected")
        rows = [(entry.node, entry.why.value, entry.message) for entry in entries]
        terminal.table(("node", "reason", "problem"), rows[:MAX_QUARANTINED])
        if len(rows) > MAX_QUARANTINED:
            terminal.line(f"... and {len(rows) - MAX_QUARANTINED} more nodes; -o json has all")


def render_fragmentation(terminal: Sheet, fragmentation: Fragmentation) -> None:
    """Print the free GPUs after the plan, and how many of them are usable."""
    free = f"{count_of(fragmentation.free_gpus, 'GPU')} {agree(fragmentation.free_gpus, 'is', 'are')} free"
    terminal.line(
        f"after this {free}; the usual groups could not use {fragmentation.expected_unusable_gpus:g} of "
        f"them, and the largest group that still fits has {count_of(fragmentation.largest_group, 'GPU')}"
    )
    rows = [
        (level.level, level.places, level.most_free_gpus, f"{level.most_unusable_gpus:g}", level.most_unusable)
        for level in plan_fragmentation(fragmentation).levels
    ]
    terminal.table(("level", "places", "most free in one", "most unusable in one", "where"), rows)
    worst = sorted(fragmentation.domains, key=lambda row: (-row.expected_unusable_gpus, row.place))
    fragmented = [row for row in worst if row.expected_unusable_gpus]
    if fragmented:
        terminal.heading("Domains with GPUs that the usual groups could not use")
        found = [
            ("/".join(row.place), row.free_gpus, f"{row.expected_unusable_gpus:g}", row.largest_group)
            for row in fragmented
        ]
        terminal.table(("domain", "free", "unusable", "largest group"), found, "domains", MAX_FRAGMENTED)


def render_notes(terminal: Sheet, notes: Sequence[str]) -> None:
    """Print notes about the lists of nodes and pods."""
    for note in notes:
        terminal.line(f"note: {note}", "yellow")


def _plan(terminal: Sheet, decision: RunDecision, plan: Plan) -> None:
    terminal.line(
        f"{decision.run.qualified_name} fits: {verdict(plan, again=decision.replanned is not None)}", "bold green"
    )
    terminal.line(f"hash {plan.hash}")
    if decision.replanned:
        _changes(terminal, decision.replanned)
    render_domains(terminal, plan.groups, decision.inventory)
    render_groups(terminal, plan.groups)
    if decision.explanation:
        terminal.heading("Results of other policies")
        _alternatives(terminal, decision.explanation.alternatives)
        terminal.heading("Why")
        for reason in (*decision.explanation.reasons, *(decision.replanned.reasons if decision.replanned else ())):
            terminal.line(f"- {reason}")
    if decision.fragmentation:
        terminal.heading("What stays")
        render_fragmentation(terminal, decision.fragmentation)


def _proof(plan: Plan, *, again: bool) -> str:
    policy, figures = plan.request.policy, plan.metrics
    if not figures.gap:
        return f": no plan {_COMPARED[policy]}"
    if again:
        return f" to the bound of {figures.lower_bound} for a plan that leaves no group where it was"
    # With spares outside or binding ceilings, the bound knows less than the planner (calculus.md, Method).
    return f" to the simple bound of {figures.lower_bound}, which leaves spares and scopes aside; the plan is the best"


def _changes(terminal: Sheet, replanned: Replanned) -> None:
    terminal.line(
        f"groups that stay: {len(replanned.kept)}, that stay in their domains with other nodes: "
        f"{len(replanned.repaired)}, that move: {len(replanned.moved)}; spare pods used: {replanned.spares_used}"
    )


def _alternatives(terminal: Sheet, alternatives: Sequence[Alternative]) -> None:
    rows: list[tuple[str | int, ...]] = []
    for each in alternatives:
        figures = each.metrics
        policy = f"{each.policy.value}{' *' if each.chosen else ''}"
        if figures is None:
            rows.append((policy, "", "", "", "", each.problem))
        else:
            found = (figures.domains, figures.blocks, figures.stranded_gpus, figures.spares_elsewhere)
            rows.append((policy, *found, "chosen" if each.chosen else ""))
    terminal.table(("policy", "domains", "blocks", "stranded", "spares elsewhere", ""), rows)


def _unused(terminal: Sheet, usable: UsableNodes) -> None:
    total = len(usable.nodes) + sum(usable.counts.values())
    counted = ", ".join(f"{why.value} {count}" for why, count in sorted(usable.counts.items()))
    terminal.heading(f"Nodes: {len(usable.nodes)} of {total} may be used{f'; not used: {counted}' if counted else ''}")
    for entry in usable.overcommitted[:MAX_QUARANTINED]:
        terminal.line(
            f"node {entry.node} has {count_of(entry.total, 'GPU')}, and pods take {entry.taken}: no GPU is taken as "
            "free"
        )
    for lacking in [entry for entry in usable.excluded if entry.why in LACKING][:MAX_QUARANTINED]:
        terminal.line(f"node {lacking.node} is {lacking.why.value}: {lacking.detail}")
    render_quarantined(terminal, usable.quarantined)


class DomainGpus(NamedTuple):
    """The GPUs of a domain: those of the plan's groups, of its spares, those that others use, and free ones."""

    groups: int
    spares: int
    others: int
    free: int

    @property
    def total(self) -> int:
        """Return the number of all GPUs of the domain."""
        return sum(self)


class DomainRow(NamedTuple):
    """A domain in the chart of a plan. A domain without groups holds spares only, and strands no GPU."""

    place: Location
    groups: int
    gpus: DomainGpus


def domain_rows(groups: Sequence[Group], inventory: Inventory) -> list[DomainRow]:
    """Return the domains with groups or spares of a plan, by location. They have GPUs of usable nodes only."""
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
    """Return the number of GPUs for one cell of the chart, so that the largest domain has at most `width` cells."""
    return max(1, -(-max((row.gpus.total for row in rows), default=1) // max(1, width)))


def cells(parts: DomainGpus, each: int) -> DomainGpus:
    """Return the parts of a domain in the chart as numbers of cells, of `each` GPUs each.

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
    """Print a chart of the domains that groups of a plan use."""
    domains = domain_rows(groups, inventory)
    names = _names([row.place for row in domains])
    columns = ("domain", "groups", "", "this", "others", "stranded")
    available_width = terminal.width - max((len(names[row.place]) for row in domains), default=0) - 40
    each = cell_gpus(domains, min(BAR_WIDTH, max(8, available_width)))
    signs = [Text(sign, color) for sign, color in zip(_SIGNS, _COLORS, strict=True)]
    unit = f"{each} GPUs" if each > 1 else "one GPU"
    terminal.legend("Domains", list(zip(signs, _MEANINGS, strict=True)), unit)
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
    """Print the domain of each group of a plan; consecutive groups in one domain share a row."""
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
