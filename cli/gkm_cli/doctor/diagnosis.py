"""The steps of `gkm doctor`: connect, run the checks, print, and choose the exit code."""

from collections.abc import Sequence
from datetime import timedelta

import typer
from gkm.api.grammar import count_of
from gkm.api.meta import timestamp

from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.doctor.checks import CHECKS
from gkm_cli.doctor.findings import Severity
from gkm_cli.doctor.options import DoctorOptions
from gkm_cli.doctor.reader import ClusterReader
from gkm_cli.doctor.report import as_list, print_results
from gkm_cli.doctor.runner import Check, Result, run_checks
from gkm_cli.output import CommandFailed, NegativeResult, show
from gkm_cli.progress import waiting


def diagnose(cluster: ClusterOptions, options: DoctorOptions) -> None:
    """Run all checks and print their results.

    Raises:
        typer.BadParameter: there is no check of a name.
        CommandFailed: there is no cluster to read, or a check without a problem could not read everything.
        NegativeResult: there is a problem.
    """
    chosen = _chosen(options.checks or ())
    connection = connected(cluster, options.namespace)
    cutoff = timestamp(connection.now() - timedelta(seconds=options.grace_seconds))
    reader = ClusterReader(connection.api, namespace=options.namespace, cutoff=cutoff, now=connection.now)
    left_out = [check.name for check in chosen if check.cluster_wide and options.namespace]
    checks = [check for check in chosen if check.name not in left_out]
    results = list(run_checks(checks, reader, waiting))
    show(as_list(results), options.output, lambda: print_results(results, left_out))
    _conclude(results)


def _chosen(names: Sequence[str]) -> list[Check]:
    """Return the checks of these names or areas; without any, all.

    Raises:
        typer.BadParameter: there is no such check.
    """
    known = {check.name for check in CHECKS} | {check.name.partition("/")[0] for check in CHECKS}
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"there is no check {name}; docs/reference/doctor.md lists all")
    return [check for check in CHECKS if not names or {check.name, check.name.partition("/")[0]} & set(names)]


def _conclude(results: Sequence[Result]) -> None:
    if any(result.finding.severity is Severity.PROBLEM for result in results):
        raise NegativeResult
    unknown = {result.check for result in results if result.finding.severity is Severity.NOT_CHECKED}
    if unknown:
        checks = count_of(len(unknown), "check")
        raise CommandFailed(f"{checks} could not read the cluster, so it may have problems; see their next steps")
