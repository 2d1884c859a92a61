"""The options that name a cluster and a namespace, as kubectl has them."""

from dataclasses import dataclass
from typing import Annotated

import typer

from gkm_cli.calls import CallOptions
from gkm_cli.output import UsageError


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(CallOptions):
    """The options that name the cluster to read."""

    kubeconfig: Annotated[
        str | None,
        typer.Option(
            "--kubeconfig", metavar="FILE", help="The kubeconfig; without it $KUBECONFIG, ~/.kube/config, or the pod."
        ),
    ] = None
    context: Annotated[str | None, typer.Option("--context", help="The context of the kubeconfig.")] = None

    def check_unnamed(self) -> None:
        """Raise UsageError if the options name a cluster, for a command that reads lists of nodes instead."""
        if self != ClusterOptions():
            raise UsageError("--nodes is given with --kubeconfig or --context", "give lists, or a cluster")


NamespaceOption = Annotated[
    str, typer.Option("-n", "--namespace", help="The namespace; without it the context's, or default.")
]
