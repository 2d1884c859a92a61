"""`gkm uninstall --check`: whether GKM can be removed from a cluster. Helm or kubectl removes it."""

from typing import Annotated

import typer

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.output import CommandFailed, NegativeResult, Output, OutputOption, UsageError, line, show

CheckOption = Annotated[bool, typer.Option("--check", help="List the pods that must end before; it is required.")]


def uninstall(cluster: ClusterOptions, *, check: CheckOption = False, output: OutputOption = Output.TABLE) -> None:
    """Check whether GKM can be removed from a cluster; exit 3 while pods use its volumes. It makes no changes."""
    if not check:
        raise UsageError(
            "gkm uninstall makes no changes",
            "run it with --check; then helm uninstall gkm (docs/reference/chart.md) removes GKM",
        )
    from gkm.kube.errors import ApiError  # noqa: PLC0415 -- the client's imports would slow down every other command
    from gkm.kube.volume_users import explanation, pods_with_volumes  # noqa: PLC0415 -- as above

    from gkm_cli.clusters.connection import connected  # noqa: PLC0415 -- as above

    api = connected(cluster).api
    try:
        found = sorted(pods_with_volumes(api))
    except ApiError as error:
        raise CommandFailed(f"the pods cannot be listed: {error.message}; pods may use volumes of GKM") from error
    pods = [{"namespace": namespace, "name": name} for namespace, name in found]
    show({"ok": not found, "pods": pods}, output, lambda: line(explanation(found)))
    if found:
        raise NegativeResult
