"""The command `gkm why`, which imports the Kubernetes client only when it runs."""

from typing import Annotated

import typer

from gkm_cli.clusters.options import ClusterOptions, NamespaceOption
from gkm_cli.output import Output, OutputOption

PodArgument = Annotated[str, typer.Argument(metavar="POD", help="The name of the pod, or pod/NAME.")]


def why(
    pod: PodArgument,
    cluster: ClusterOptions,
    *,
    namespace: NamespaceOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Say why a pod has no cache, or why its kernels miss: the first broken link, and what to do; exit 3 if one is."""
    from gkm_cli.why.explanation import explain  # noqa: PLC0415 -- its imports would slow down every other command

    explain(pod, cluster, namespace, output)
