"""The commands `gkm plan` and `gkm plan unfold`, which import numpy and its users only when they run."""

from typing import Annotated

import typer

from gkm_cli.clusters.options import ClusterOptions, NamespaceOption
from gkm_cli.lazy_commands import CommandGroup, PlainCommand, with_groups
from gkm_cli.output import PROGRAM, CommandFailed, UsageError
from gkm_cli.plan.options import PlanOptions, RunFlags, UnfoldOutput

HELP = """Plan where the groups of a run go, and explain it; exit 3 if it does not fit.

The policy decides which plan is the best; of equal plans, the later criteria decide.

fewest-domains: the fewest NVLink domains, then the fewest stranded GPUs, then the fewest blocks.

fewest-blocks: the fewest blocks, then the fewest domains, then the fewest stranded GPUs.

least-waste: the fewest stranded GPUs, which stay free in the domains of the run; then domains, then blocks.
"""
app = typer.Typer(
    cls=CommandGroup,
    rich_markup_mode=None,
    help=HELP,
    invoke_without_command=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Example: {PROGRAM} plan --total-gpus 256 --group 16 --nodes nodes.json --pods pods.json",
)
PlanArgument = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help="A file with the plan, - for standard input; or the name of a PlacementPlan, which ends in a number.",
    ),
]


@app.callback()
@with_groups
def plan(invocation: typer.Context, options: PlanOptions, flags: RunFlags, cluster: ClusterOptions) -> None:
    """Plan where the groups of a run go, and explain it; exit 3 if it does not fit."""
    if invocation.invoked_subcommand is not None:
        if (options, flags, cluster) != (PlanOptions(), RunFlags(), ClusterOptions()):
            raise UsageError(
                f"there are options before {invocation.invoked_subcommand}",
                f"put the options of {invocation.invoked_subcommand} behind",
            )
        return
    try:
        from gkm_cli.plan.planning import print_plan  # noqa: PLC0415 -- numpy would slow down every other command
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"{error.name} is not installed; install GKM with its extra: pip install '.[cli]'"
        ) from error

    print_plan(options, flags, cluster)


def unfold(
    plan: PlanArgument,
    cluster: ClusterOptions,
    *,
    namespace: NamespaceOption = "",
    output: Annotated[
        UnfoldOutput,
        typer.Option("-o", "--output", help="The output format; list has one group a line, hostfile is MPI's."),
    ] = UnfoldOutput.LIST,
) -> None:
    """Print the nodes of each group of a plan, name by name."""
    from gkm_cli.plan.unfolding import print_nodes  # noqa: PLC0415 -- see plan

    print_nodes(plan, cluster, namespace, output)


app.command(cls=PlainCommand, epilog=f"Example: {PROGRAM} plan unfold llama-1 -n ml-apps -o hostfile")(
    with_groups(unfold)
)
