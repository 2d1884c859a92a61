"""The command `gkm why`, which imports the Kubernetes client only when it runs."""

from typing import Annotated

import typer

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.output import Output, OutputOption
from gkm_cli.why.options import PodChoice

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="[POD]",
        help="A pod, or deploy/NAME, sts/NAME, ds/NAME, rs/NAME, job/NAME, gkmcache/NAME, clustergkmcache/NAME; "
        "without it the pods of the namespace that wait or fail for a volume of GKM.",
    ),
]


def why(
    cluster: ClusterOptions, choice: PodChoice, *, target: TargetArgument = "", output: OutputOption = Output.TABLE
) -> None:
    """Say why pods have no cache, or why their kernels miss: each broken link, and what to do; exit 3 if one is."""
    from gkm_cli.why.explanation import explain  # noqa: PLC0415 -- its imports would slow down every other command

    explain(target, cluster, choice, output)
