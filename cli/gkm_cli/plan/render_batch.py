"""The result for several runs as text: verdict, admitted runs and domains, refused runs and reasons."""

from collections.abc import Sequence

from gkm.api.grammar import agree, count_of, listed

from gkm_cli.plan.render import render_fragmentation, render_notes, render_quarantined
from gkm_cli.plan.render_domains import render_domains
from gkm_cli.plan.run_batch import BatchDecision
from gkm_cli.plan.sheet import Sheet

MAX_REFUSED = 16


def render_batch(terminal: Sheet, queue: BatchDecision, notes: Sequence[str]) -> None:
    """Print the result for several runs."""
    terminal.line(_verdict(queue), "bold red" if queue.batch.rejected else "bold green")
    _what_if(terminal, queue)
    if queue.admitted:
        _admitted(terminal, queue)
        groups = [group for _, plan in queue.admitted for group in plan.groups]
        render_domains(terminal, groups, queue.inventory)
    _refused(terminal, queue)
    terminal.heading("What stays")
    render_fragmentation(terminal, queue.fragmentation)
    render_quarantined(terminal, queue.quarantined)
    render_notes(terminal, notes)


def captions(queue: BatchDecision) -> list[str]:
    """Return the result for several runs in sentences."""
    refused = [f"{each.run.qualified_name} is not admitted: {each.refusal.message}" for each in queue.refused]
    return [_verdict(queue), *refused[:MAX_REFUSED]]


def _verdict(queue: BatchDecision) -> str:
    batch = queue.batch
    runs = len(batch.admitted) + len(batch.rejected)
    proof = "no batch admits more" if not batch.gap else f"no batch admits more than {batch.bound}"
    late = "; the search ran out of time" if batch.cut_short else ""
    fitting = f"{len(batch.admitted)} of {count_of(runs, 'run')} {agree(runs, 'fits', 'fit')}"
    return f"{fitting}: {count_of(batch.objective, 'GPU')}; gap {batch.gap}: {proof}{late}"


def _what_if(terminal: Sheet, queue: BatchDecision) -> None:
    changed = queue.what_if
    if changed is None:
        return
    before, after = changed.before.objective, changed.after.objective
    fits = "fits" if changed.plan else "does not fit"
    admitted = f"{count_of(before, 'GPU')} {agree(before, 'is', 'are')} admitted without it, {after} with it"
    terminal.line(f"{queue.extra}, one more, {fits}: {admitted}")
    for word, names in (("displaced", changed.displaced), ("gained", changed.gained), ("moved", changed.moved)):
        if names:
            terminal.line(f"{word}: {listed(names, MAX_REFUSED)}")


def _admitted(terminal: Sheet, queue: BatchDecision) -> None:
    terminal.heading("Admitted, in the order of planning")
    rows = [
        (
            run.qualified_name,
            run.spec.priority,
            plan.gpus,
            len(plan.groups),
            plan.metrics.domains,
            plan.metrics.blocks,
            plan.metrics.stranded_gpus,
            plan.metrics.spares_elsewhere,
        )
        for run, plan in queue.admitted
    ]
    columns = ("run", "priority", "gpus", "groups", "domains", "blocks", "stranded", "spares elsewhere")
    terminal.table(columns, rows, "runs")


def _refused(terminal: Sheet, queue: BatchDecision) -> None:
    if not queue.refused:
        return
    terminal.heading("Not admitted, after the others")
    for refused in queue.refused[:MAX_REFUSED]:
        alone = " (alone it would fit)" if refused.fits_alone else ""
        terminal.line(f"{refused.run.qualified_name}{alone}: {refused.refusal.message}")
        for fix in refused.fixes:
            terminal.line(f"    would fit: {fix.sentence}")
    if len(queue.refused) > MAX_REFUSED:
        terminal.line(f"... and {len(queue.refused) - MAX_REFUSED} more runs; -o json has all")
