"""The steps of `gkm doctor`: connect, run the checks, print, and choose the exit code."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from gkm.api.grammar import count_of
from gkm.api.meta import timestamp
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.credentials import UNAUTHORIZED
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.resources import Json, Resource

from gkm_cli.doctor.domains import checks as domains
from gkm_cli.doctor.findings import Severity
from gkm_cli.doctor.options import DoctorOptions
from gkm_cli.doctor.reader import ClusterReader
from gkm_cli.doctor.report import as_list, print_results
from gkm_cli.doctor.runner import Check, Result, run_checks
from gkm_cli.output import CommandFailed, NegativeResult, show
from gkm_cli.progress import waiting

CHECKS: tuple[Check, ...] = domains.CHECKS
REQUEST_SECONDS = 10.0
NAMESPACES: Resource[Json] = Resource("v1", "Namespace", "namespaces", namespaced=False, type=Json)
_ALWAYS_THERE = "kube-system"


def diagnose(options: DoctorOptions) -> None:
    """Run all checks and print their results.

    Raises:
        CommandFailed: there is no cluster to read, or a check without a problem could not read everything.
        NegativeResult: there is a problem.
    """
    # Log records of the client would go to standard error, unescaped; what matters of them is in the results.
    logging.getLogger().addHandler(logging.NullHandler())
    api = _connected(options)
    cutoff = timestamp(datetime.now(UTC) - timedelta(seconds=options.grace_seconds))
    reader = ClusterReader(api, namespace=options.namespace, cutoff=cutoff)
    left_out = [check.name for check in CHECKS if check.cluster_wide and options.namespace]
    checks = [check for check in CHECKS if check.name not in left_out]
    results = list(run_checks(checks, reader, waiting))
    show(as_list(results), options.output, lambda: print_results(results, left_out))
    _conclude(results)


def _connected(options: DoctorOptions) -> Api:
    """Return the API of a cluster that answers, and whose namespace exists."""
    try:
        api = connect(options.kubeconfig, options.context, timeout=REQUEST_SECONDS)
    except Exception as error:
        # The official client raises errors of any type for a file of another shape, whose text may quote the file.
        cause = str(error) if isinstance(error, ValueError) else type(error).__name__
        hint = "name a kubeconfig with --kubeconfig, and one of its contexts with --context"
        raise CommandFailed(f"the kubeconfig cannot be used: {cause}; {hint}") from error
    try:
        api.get(NAMESPACES, options.namespace or _ALWAYS_THERE)
    except ApiError as error:
        if error.status == NO_RESPONSE:
            raise CommandFailed(f"{error.message}; check the cluster in the kubeconfig and your network") from error
        if error.status == UNAUTHORIZED:
            raise CommandFailed(f"the API server refuses the credentials: {error.message}; log in again") from error
        if error.not_found and options.namespace:
            raise CommandFailed(
                f"there is no namespace {options.namespace}; kubectl get namespaces lists all"
            ) from error
        # Any other answer shows that the API server is there; each check says what it cannot read.
    return api


def _conclude(results: Sequence[Result]) -> None:
    if any(result.finding.severity is Severity.PROBLEM for result in results):
        raise NegativeResult
    unknown = {result.check for result in results if result.finding.severity is Severity.NOT_CHECKED}
    if unknown:
        checks = count_of(len(unknown), "check")
        raise CommandFailed(f"{checks} could not read the cluster, so it may have problems; see their next steps")
