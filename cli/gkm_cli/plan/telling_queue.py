"""Several runs' answer for people: how good the batch is, what is admitted and where, what is not and why."""

from collections.abc import Sequence

from gkm.api.grammar import agree, count_of
from gkm.topology.hygiene import Quarantined

from gkm_cli.plan.queueing import Queue
from gkm_cli.plan.sheet import Sheet
from gkm_cli.plan.telling import tell_left, tell_notes, tell_quarantined
from gkm_cli.plan.telling_domains import domains

MAX_REFUSED = 16


def tell(queue: Queue, quarantined: Sequence[Quarantined], notes: Sequence[str]) -> None:
    """Print the answer for several runs."""
    sheet = Sheet()
    _verdict(sheet, queue)
    _what_if(sheet, queue)
    if queue.admitted:
        _admitted(sheet, queue)
        groups = [group for _, plan in queue.admitted for group in plan.groups]
        domains(sheet, groups, queue.inventory)
    _refused(sheet, queue)
    sheet.heading("What stays")
    tell_left(sheet, queue.fragmentation)
    tell_quarantined(sheet, quarantined)
    tell_notes(sheet, notes)


def _verdict(sheet: Sheet, queue: Queue) -> None:
    batch = queue.batch
    runs = len(batch.admitted) + len(batch.rejected)
    proof = "no batch admits more" if not batch.gap else f"no batch admits more than {batch.bound}"
    late = "; the search ran out of time" if batch.cut_short else ""
    fitting = f"{len(batch.admitted)} of {count_of(runs, 'run')} {agree(runs, 'fits', 'fit')}"
    verdict = f"{fitting}: {count_of(batch.objective, 'GPU')}; gap {batch.gap}: {proof}{late}"
    sheet.line(verdict, "bold green" if not batch.rejected else "bold red")


def _what_if(sheet: Sheet, queue: Queue) -> None:
    changed = queue.what_if
    if changed is None:
        return
    before, after = changed.before.objective, changed.after.objective
    fits = "fits" if changed.plan else "does not fit"
    admitted = f"{count_of(before, 'GPU')} {agree(before, 'is', 'are')} admitted without it, {after} with it"
    sheet.line(f"{queue.extra}, one more, {fits}: {admitted}")
    for word, names in (("displaced", changed.displaced), ("gained", changed.gained), ("moved", changed.moved)):
        if names:
            more = f" and {len(names) - MAX_REFUSED} more" if len(names) > MAX_REFUSED else ""
            sheet.line(f"{word}: {', '.join(names[:MAX_REFUSED])}{more}")


def _admitted(sheet: Sheet, queue: Queue) -> None:
    sheet.heading("Admitted, in the order of planning")
    rows = [
        (
            run.called,
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
    sheet.table(columns, rows, "runs")


def _refused(sheet: Sheet, queue: Queue) -> None:
    if not queue.refused:
        return
    sheet.heading("Not admitted, on what the others leave")
    for refused in queue.refused[:MAX_REFUSED]:
        alone = " (alone it would fit)" if refused.fits_alone else ""
        sheet.line(f"{refused.run.called}{alone}: {refused.refusal.message}")
        for fix in refused.fixes:
            sheet.line(f"    would fit: {fix.sentence}")
    if len(queue.refused) > MAX_REFUSED:
        sheet.line(f"... and {len(queue.refused) - MAX_REFUSED} more runs; -o json has all")
