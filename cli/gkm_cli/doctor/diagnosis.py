"""The steps of `gkm doctor`: connect, run the checks, print, and choose the exit code.

The results are a table for people, and a list for programs (docs/reference/doctor.md).
"""

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import typer
from gkm.api.grammar import count_of
from gkm.api.meta import timestamp
from gkm.hoststate.escaping import escape

from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.doctor.bundle.contents import Contents, PartRead, write_archive
from gkm_cli.doctor.checks import CHECKS
from gkm_cli.doctor.findings import Finding, Severity
from gkm_cli.doctor.options import DoctorOptions
from gkm_cli.doctor.runner import Check, ClusterReader, Result, run_checks
from gkm_cli.output import CommandFailed, NegativeResult, UsageError, line, show, table
from gkm_cli.progress import waiting

MAX_ROWS = 100
MAX_UNREAD = 5
"""Parts that are not in the bundle, on standard error; about.json has all."""
_GOOD = (Severity.OK, Severity.WARNING)
_WORST_FIRST = (Severity.PROBLEM, Severity.NOT_CHECKED, Severity.WARNING, Severity.OK, Severity.SKIPPED)
_SILENT = (Severity.OK, Severity.SKIPPED)
"""Without a cause and a next step."""


def diagnose(cluster: ClusterOptions, options: DoctorOptions) -> None:
    """Run the chosen checks of `gkm doctor` and print their results.

    Raises:
        typer.BadParameter: there is no check of a name.
        UsageError: a namespace is given, and the chosen checks need the whole cluster.
        CommandFailed: there is no cluster to read, or a check without a problem could not read everything.
        NegativeResult: there is a problem.
    """
    chosen = _chosen(options.checks or ())
    left_out = [check.name for check in chosen if check.cluster_wide and options.namespace]
    checks = [check for check in chosen if check.name not in left_out]
    if not checks:
        raise UsageError(f"these checks need the whole cluster: {', '.join(left_out)}", "leave out --namespace")
    connection = connected(cluster, options.namespace)
    cutoff = timestamp(connection.now() - timedelta(seconds=options.grace_seconds))
    reader = ClusterReader(connection.api, namespace=options.namespace, cutoff=cutoff, now=connection.now)
    results = list(run_checks(checks, reader, waiting))
    contents = Contents(connection.api, reader)
    if options.bundle is not None:
        with waiting("writing the bundle"):
            _write_bundle(options.bundle, contents, results, reader.now())
    show(as_list(results), options.output, lambda: print_results(results, left_out))
    _conclude(results, contents.unread)


def _chosen(names: Sequence[str]) -> list[Check[Any]]:
    """Return the checks of these names or areas; without any, all.

    Raises:
        typer.BadParameter: there is no such check.
    """
    known = {check.name for check in CHECKS} | {check.name.partition("/")[0] for check in CHECKS}
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no check {name}; docs/reference/doctor.md lists all")
    return [check for check in CHECKS if not names or {check.name, check.name.partition("/")[0]} & set(names)]


def _write_bundle(path: Path, contents: Contents, results: Sequence[Result], made: datetime) -> None:
    """Write the bundle, and print on standard error which parts are missing."""
    write_archive(path, f"gkm-bundle-{made:%Y%m%dT%H%M%SZ}", contents.files(as_list(results)), made)
    texts = [f"{part.name} is not in it: {part.why}" for part in contents.unread[:MAX_UNREAD]]
    for text in (f"bundle: {path}: look at it before you give it away", *texts):
        sys.stderr.write(escape(text) + "\n")


def _conclude(results: Sequence[Result], unread: Sequence[PartRead]) -> None:
    if any(result.finding.severity is Severity.PROBLEM for result in results):
        raise NegativeResult
    unknown = {result.check for result in results if result.finding.severity is Severity.NOT_CHECKED}
    if unknown:
        checks = count_of(len(unknown), "check")
        raise CommandFailed(f"{checks} could not read the cluster, so it may have problems; see their next steps")
    if unread:
        parts = count_of(len(unread), "part")
        raise CommandFailed(f"{parts} of the bundle could not be read; about.json in it has the reasons")


def as_list(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the results of checks for programs. `ok` is false for a problem or an unknown state; None if skipped."""
    return [
        {
            "check": result.check,
            "ok": None if result.finding.severity is Severity.SKIPPED else result.finding.severity in _GOOD,
            "severity": result.finding.severity.value,
            "object": result.finding.object,
            "detail": result.finding.detail,
            "why": result.finding.why,
            "hint": result.finding.hint,
        }
        for result in results
    ]


def print_results(results: Sequence[Result], left_out: Sequence[str]) -> None:
    """Print the worst results first, then their causes, and a summary. `left_out` are checks that were not run.

    Causes and next steps are not in the table, which would break the commands in them into several lines.
    """
    ordered = sorted(results, key=lambda result: _WORST_FIRST.index(result.finding.severity))
    shown = [(result.check, result.finding) for result in ordered[:MAX_ROWS]]
    rows = [(found.severity.value, check, found.object or found.detail) for check, found in shown]
    table(("result", "check", "about"), rows)
    if len(ordered) > MAX_ROWS:
        line(f"... and {len(ordered) - MAX_ROWS} more; -o json has all")
    for check, found in shown:
        if found.severity not in _SILENT:
            _print_cause(check, found)
    line("")
    line(_summary(results))
    if left_out:
        line(f"left out, because they need the whole cluster: {', '.join(left_out)}")


def _print_cause(check: str, finding: Finding) -> None:
    line("")
    line(f"{finding.severity.value}: {finding.object or check}: {finding.detail}")
    for label, text in (("why", finding.why), ("next", finding.hint)):
        if text:
            line(f"  {label}: {text}")


def _summary(results: Sequence[Result]) -> str:
    counts = Counter(result.finding.severity for result in results)
    checks = count_of(len({result.check for result in results}), "check")
    problems = count_of(counts[Severity.PROBLEM], "problem")
    return (
        f"{checks}: {problems}, {count_of(counts[Severity.WARNING], 'warning')}, "
        f"{counts[Severity.NOT_CHECKED]} not checked, {counts[Severity.SKIPPED]} skipped"
    )
