"""The options of `gkm doctor`."""

from dataclasses import dataclass
from typing import Annotated

import typer

from gkm_cli.output import Output, OutputOption


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """Which cluster to read, as kubectl takes it, and how to print."""

    kubeconfig: Annotated[
        str | None,
        typer.Option(
            "--kubeconfig", metavar="FILE", help="The kubeconfig; without it $KUBECONFIG, the pod, or ~/.kube/config."
        ),
    ] = None
    context: Annotated[str | None, typer.Option("--context", help="The context of the kubeconfig.")] = None
    namespace: Annotated[
        str,
        typer.Option("-n", "--namespace", help="Check only this namespace, and leave out checks of the whole cluster."),
    ] = ""
    grace_seconds: Annotated[
        float,
        typer.Option("--grace", metavar="SECONDS", min=0, max=86_400, help="Accept an unfinished state for this long."),
    ] = 60.0
    output: OutputOption = Output.TABLE
