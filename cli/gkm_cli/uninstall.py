"""`gkm uninstall --check`: whether GKM can be removed from a cluster. Helm or kubectl removes it."""

from collections.abc import Iterable
from typing import Annotated

import typer

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.output import NegativeResult, Output, OutputOption, UsageError, line, show

CheckOption = Annotated[bool, typer.Option("--check", help="List the pods that must end before; it is required.")]


def uninstall(cluster: ClusterOptions, *, check: CheckOption = False, output: OutputOption = Output.TABLE) -> None:
    """Check whether GKM can be removed from a cluster; exit 3 while pods need it. It makes no changes."""
    if not check:
        raise UsageError(
            "gkm uninstall makes no changes",
            "run it with --check; then helm uninstall gkm (docs/reference/chart.md) removes GKM",
        )
    from gkm.kube.errors import ApiError  # noqa: PLC0415 -- the client's imports would slow down every other command
    from gkm.kube.volume_users import PODS, explanation, gated_pods, pods_with_volumes  # noqa: PLC0415 -- as above

    from gkm_cli.clusters.connection import connected  # noqa: PLC0415 -- as above
    from gkm_cli.clusters.reads import unreadable  # noqa: PLC0415 -- as above

    api = connected(cluster).api
    try:
        users, gated = sorted(pods_with_volumes(api)), sorted(gated_pods(api))
    except ApiError as error:
        raise unreadable("list", PODS, "", "", error) from error
    ok = not users and not gated
    show({"ok": ok, "pods": _named(users), "gated": _named(gated)}, output, lambda: line(explanation(users, gated)))
    if not ok:
        raise NegativeResult


def _named(pods: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"namespace": namespace, "name": name} for namespace, name in pods]
