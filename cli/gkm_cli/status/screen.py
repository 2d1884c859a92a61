"""A status as text: one short section a part, on a terminal, in a pipe or on a page. Pure but for the sheet."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gkm.api.grammar import agree, count_of, listed

from gkm_cli.status.parts import (
    CACHE_STATES,
    Caches,
    CacheState,
    FabricDomains,
    Nodes,
    NotKnown,
    Problems,
    RunState,
    Status,
    WaitingPods,
    WorkloadDomain,
)
from gkm_cli.terminal import Sheet

T = TypeVar("T")
MAX_NAMES = 5
MAX_TEXT = 120
"""Characters of a message in a table."""
_FAULT = "red"
_AGENT_CHECKS = ("agent/", "nodes/label")
"""The checks of gkm doctor that decide whether a node needs an agent: with `delivery: image`, none does."""


def render(sheet: Sheet, status: Status, rows: int) -> None:
    """Print a status on a sheet; a table has at most `rows` rows."""
    where = f"of the namespace {status.namespace} " if status.namespace else ""
    sheet.line(f"status {where}at {status.time}")
    _section(sheet, "Nodes", status.nodes, lambda sheet, found: _nodes(sheet, found, status.problems))
    _section(sheet, "Caches", status.caches, lambda sheet, found: _caches(sheet, found, rows))
    _section(
        sheet, "Pods that wait for a volume", status.waiting_pods, lambda sheet, found: _waiting(sheet, found, rows)
    )
    _section(sheet, "Fabric domains", status.fabric_domains, lambda sheet, found: _fabric(sheet, found, rows))
    _section(sheet, "ComputeDomains", status.compute_domains, lambda sheet, found: _workloads(sheet, found, rows))
    _section(sheet, "Runs", status.runs, lambda sheet, found: _runs(sheet, found, rows))
    _section(sheet, "Problems", status.problems, lambda sheet, found: _problems(sheet, found, status.namespace, rows))


def _section(sheet: Sheet, title: str, part: T | NotKnown | None, render_part: Callable[[Sheet, T], None]) -> None:
    """Print a part, or why it is not known; a part of the whole cluster is None in the status of a namespace."""
    if part is None:
        return
    sheet.heading(title)
    if isinstance(part, NotKnown):
        not_known(sheet, part)
    else:
        render_part(sheet, part)


def not_known(sheet: Sheet, part: NotKnown) -> None:
    """Print why a part of the status is not known, and what to do next."""
    sheet.line(f"not known: {part.why}", _FAULT)
    sheet.line(f"  next: {part.hint}")


def _nodes(sheet: Sheet, found: Nodes, problems: Problems) -> None:
    sheet.line(
        f"{count_of(found.total, 'node')}, {found.ready} ready; {found.with_gpus} with GPUs, {found.served} of these "
        f"with a ready agent; {count_of(found.agents, 'agent')}, {found.ready_agents} ready"
    )
    if found.unserved:
        is_fault = any(each.problems for each in problems.found if each.check.startswith(_AGENT_CHECKS))
        names = listed(found.unserved, MAX_NAMES)
        sheet.line(f"with GPUs and without a ready agent: {names}", _FAULT if is_fault else "")


def _caches(sheet: Sheet, found: Caches, rows: int) -> None:
    if not found.kinds:
        sheet.line("no caches")
        return
    counts: list[tuple[str | int, ...]] = [
        (kind.kind, kind.total, *(kind.states[state] for state in CACHE_STATES)) for kind in found.kinds
    ]
    sheet.table(("kind", "all", *CACHE_STATES), counts)
    for kind in found.kinds:
        if kind.generations:
            sheet.line(
                f"{kind.kind}: {count_of(kind.families, 'family', 'families')} with "
                f"{count_of(kind.generations, 'generation')}, {kind.pinned} pinned, {kind.held_back} held back"
            )
    unfinished = [cache for cache in found.caches if cache.state != "ready"]
    if unfinished:
        columns = ("namespace", "cache", "state", "nodes", "reason", "message")
        sheet.table(columns, [_cache(cache) for cache in unfinished], "caches that are not ready", rows)


def _cache(cache: CacheState) -> tuple[str, ...]:
    fitting = cache.ready_nodes + cache.pulling_nodes + cache.waiting_nodes + cache.failed_nodes
    namespace = cache.namespace or "(cluster)"
    return namespace, cache.name, cache.state, f"{cache.ready_nodes}/{fitting}", cache.cause, _short(cache.message)


def _waiting(sheet: Sheet, found: WaitingPods, rows: int) -> None:
    if not found.volumes:
        sheet.line("no pod waits")
        return
    table = [(each.namespace, each.cache, each.pods, each.first, _short(each.why)) for each in found.volumes]
    sheet.table(("namespace", "cache", "pods", "first", "reason"), table, "caches", rows)
    sheet.line(f"next: {found.volumes[0].next}")


def _fabric(sheet: Sheet, found: FabricDomains, rows: int) -> None:
    impaired = sum(bool(each.impaired) for each in found.domains)
    unknown = sum(bool(each.unknown) for each in found.domains)
    health = (
        f", {impaired} with impaired nodes, {unknown} with nodes whose health is not known" if found.domains else ""
    )
    outside = f"{count_of(found.outside, 'node')} with GPUs {agree(found.outside, 'is', 'are')} in no domain"
    sheet.line(f"{count_of(len(found.domains), 'domain')}{health}; {outside}")
    if found.invalid:
        sheet.line(f"labels that cannot be read: {listed(found.invalid, MAX_NAMES)}", _FAULT)
    table = [(each.name, each.nodes, each.healthy, each.impaired, each.unknown) for each in found.domains]
    if table:
        sheet.table(("domain", "nodes", "healthy", "impaired", "not known"), table, "domains", rows)


def _workloads(sheet: Sheet, found: Sequence[WorkloadDomain], rows: int) -> None:
    sheet.line(_by_state("ComputeDomain", [each.state for each in found]))
    table = [
        (each.namespace, each.name, each.state, f"{each.ready}/{each.expected}", each.reason, _short(each.message))
        for each in found
    ]
    if table:
        sheet.table(("namespace", "name", "state", "ready", "reason", "message"), table, "ComputeDomains", rows)


def _runs(sheet: Sheet, found: Sequence[RunState], rows: int) -> None:
    sheet.line(_by_state("run", [each.state for each in found]))
    table = [
        (
            each.namespace,
            each.name,
            each.state,
            f"{each.planned_gpus}/{each.gpus}",
            each.domains,
            each.plan,
            each.reason if each.state != "planned" else "",
            _short(each.message) if each.state != "planned" else "",
        )
        for each in found
    ]
    if table:
        columns = ("namespace", "run", "state", "GPUs", "domains", "plan", "reason", "message")
        sheet.table(columns, table, "runs", rows)


def _problems(sheet: Sheet, found: Problems, namespace: str, rows: int) -> None:
    sheet.line(
        f"{count_of(found.checks, 'check')}: {count_of(found.problems, 'problem')}, "
        f"{count_of(found.warnings, 'warning')}, {found.not_checked} not checked; "
        f"{count_of(len(found.left_out), 'check')} left out",
        _FAULT if found.problems + found.not_checked else "",
    )
    if found.found:
        table = [(each.check, each.problems, each.warnings, each.not_checked) for each in found.found]
        sheet.table(("check", "problems", "warnings", "not checked"), table, "checks", rows)
    sheet.line(f"next: gkm doctor -n {namespace}" if namespace else "next: gkm doctor")


def _by_state(noun: str, states: Sequence[str]) -> str:
    """Return how many objects there are, and how many in each state."""
    return "; ".join([count_of(len(states), noun), *_counted(states)])


def _counted(states: Sequence[str]) -> Iterator[str]:
    yield from (f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
