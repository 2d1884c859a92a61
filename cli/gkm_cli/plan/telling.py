"""One run's answer for people: the verdict, the domains as a picture, groups, other policies, what stays, and why."""

from collections.abc import Sequence

from gkm.api.grammar import agree, count_of
from gkm.packing.explaining import Alternative
from gkm.packing.fragmentation import Fragmentation
from gkm.packing.inventory_of import Usable
from gkm.packing.replanning.values import Replanned
from gkm.packing.values import Plan, Policy, Refusal
from gkm.topology.hygiene import Quarantined

from gkm_cli.plan.deciding import Decided
from gkm_cli.plan.sheet import Sheet
from gkm_cli.plan.telling_domains import domains, ranges

MAX_QUARANTINED = 8
_COMPARED = {
    Policy.FEWEST_DOMAINS: "uses fewer domains",
    Policy.FEWEST_BLOCKS: "uses fewer blocks",
    Policy.LEAST_WASTE: "strands fewer GPUs",
}


def tell(decided: Decided, notes: Sequence[str]) -> None:
    """Print the answer for one run."""
    sheet = Sheet()
    outcome = decided.outcome
    if isinstance(outcome, Refusal):
        refusal(sheet, decided.run.called, outcome)
        if decided.fixes:
            sheet.heading("Each of these alone would make it fit:")
            sheet.numbered(fix.sentence for fix in decided.fixes)
    else:
        _plan(sheet, decided, outcome)
    _unused(sheet, decided.usable)
    tell_notes(sheet, [*decided.left_out, *notes])


def refusal(sheet: Sheet, name: str, refused: Refusal) -> None:
    """Print why a run does not fit."""
    sheet.line(f"{name} does not fit: {refused.message}", "bold red")
    sheet.line(f"level {refused.level.value}; largest that fits: {count_of(refused.largest_groups, 'whole group')}")


def verdict(plan: Plan, *, again: bool = False) -> str:
    """Return what a plan is, and how good, in one sentence; `again` says that the run had one before."""
    figures, asked = plan.metrics, plan.request
    sizes = f"{count_of(len(plan.groups), 'group')} of {count_of(asked.group_gpus, 'GPU')}"
    if plan.gpus % asked.group_gpus:
        sizes += " (the last smaller)"
    smaller = f" instead of {asked.gpus}" if plan.gpus < asked.gpus else ""
    where = f"{count_of(figures.domains, 'domain')} of {count_of(figures.blocks, 'block')}"
    spares = f", {count_of(asked.spares, 'spare pod')} a group" if asked.spares else ""
    gpus, stranded = count_of(plan.gpus, "GPU"), count_of(figures.stranded_gpus, "GPU")
    proof = _proof(plan, again=again)
    return f"{sizes}, {gpus}{smaller}{spares}, in {where}; {stranded} stranded; gap {figures.gap}{proof}"


def tell_quarantined(sheet: Sheet, entries: Sequence[Quarantined]) -> None:
    """Print the nodes that are set aside, each with the reason."""
    if entries:
        sheet.heading(f"Quarantined, {count_of(len(entries), 'node')}: no run uses them until somebody mends this")
        rows = [(entry.node, entry.why.value, entry.message) for entry in entries]
        sheet.table(("node", "reason", "what is wrong"), rows[:MAX_QUARANTINED])
        if len(rows) > MAX_QUARANTINED:
            sheet.line(f"... and {len(rows) - MAX_QUARANTINED} more nodes; -o json has all")


def tell_left(sheet: Sheet, left: Fragmentation) -> None:
    """Print what is free after the plan, and how much of it is of use."""
    free = f"{count_of(left.free_gpus, 'GPU')} {agree(left.free_gpus, 'is', 'are')} free"
    sheet.line(
        f"after this {free}; the usual groups could not use {left.expected_unusable_gpus:g} of "
        f"them, and the largest group that still fits has {count_of(left.largest_group, 'GPU')}"
    )


def tell_notes(sheet: Sheet, notes: Sequence[str]) -> None:
    """Print what a person should know of the lists."""
    for note in notes:
        sheet.line(f"note: {note}", "yellow")


def _plan(sheet: Sheet, decided: Decided, plan: Plan) -> None:
    sheet.line(f"{decided.run.called} fits: {verdict(plan, again=decided.replanned is not None)}", "bold green")
    if decided.replanned:
        _changes(sheet, decided.replanned)
    domains(sheet, plan.groups, decided.inventory)
    ranges(sheet, plan.groups)
    if decided.explanation:
        sheet.heading("What other policies would give")
        _alternatives(sheet, decided.explanation.alternatives)
        sheet.heading("Why")
        for reason in (*decided.explanation.reasons, *(decided.replanned.reasons if decided.replanned else ())):
            sheet.line(f"- {reason}")
    if decided.fragmentation:
        sheet.heading("What stays")
        tell_left(sheet, decided.fragmentation)


def _proof(plan: Plan, *, again: bool) -> str:
    policy, figures = plan.request.policy, plan.metrics
    if not figures.gap:
        return f": no plan {_COMPARED[policy]}"
    if again:
        return f" to the bound of {figures.lower_bound} for a plan that leaves no group where it was"
    # Where spares leave or ceilings bind, the bound sees less than the planner (calculus.md, Proof).
    return f" to the simple bound of {figures.lower_bound}, which leaves spares and scopes aside; the plan is the best"


def _changes(sheet: Sheet, replanned: Replanned) -> None:
    sheet.line(
        f"groups that stay: {len(replanned.kept)}, that stay in their domains with other nodes: "
        f"{len(replanned.repaired)}, that move: {len(replanned.moved)}; spare pods used: {replanned.spares_used}"
    )


def _alternatives(sheet: Sheet, alternatives: Sequence[Alternative]) -> None:
    rows: list[tuple[str | int, ...]] = []
    for each in alternatives:
        figures = each.metrics
        policy = f"{each.policy.value}{' *' if each.chosen else ''}"
        if figures is None:
            rows.append((policy, "", "", "", "", each.problem))
        else:
            found = (figures.domains, figures.blocks, figures.stranded_gpus, figures.spares_elsewhere)
            rows.append((policy, *found, "chosen" if each.chosen else ""))
    sheet.table(("policy", "domains", "blocks", "stranded", "spares elsewhere", ""), rows)


def _unused(sheet: Sheet, usable: Usable) -> None:
    total = len(usable.nodes) + sum(usable.counts.values())
    counted = ", ".join(f"{why.value} {count}" for why, count in sorted(usable.counts.items()))
    sheet.heading(f"Nodes: {len(usable.nodes)} of {total} may be used{f'; not used: {counted}' if counted else ''}")
    for entry in usable.overcommitted[:MAX_QUARANTINED]:
        sheet.line(
            f"node {entry.node} has {count_of(entry.total, 'GPU')}, and pods take {entry.taken}: none counts as free"
        )
    tell_quarantined(sheet, usable.quarantined)
