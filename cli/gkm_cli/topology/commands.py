"""The commands `gkm topology`, which import gkm.topology only when they run."""

from pathlib import Path
from typing import Annotated

import typer

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.lazy_commands import CommandGroup, PlainCommand, with_groups
from gkm_cli.output import PROGRAM
from gkm_cli.topology.options import BuildOutput, CheckOutput, ConfigOption, NodesOption, ShowOutput, SourceOptions

app = typer.Typer(
    cls=CommandGroup,
    rich_markup_mode=None,
    help="Find the tree of domains in labels, cables and switches, check it, and print it for schedulers.",
    no_args_is_help=True,
)


def build(
    sources: SourceOptions,
    cluster: ClusterOptions,
    *,
    output: Annotated[
        BuildOutput, typer.Option("-o", "--output", help="The tree, or the objects of a scheduler.")
    ] = BuildOutput.TREE,
) -> None:
    """Build the tree from lists or a cluster, and print it, or the objects that a scheduler reads."""
    from gkm_cli.topology.building import print_tree  # noqa: PLC0415 -- its imports would slow down every other command

    print_tree(sources, cluster, output)


def check(
    nodes: NodesOption,
    config: ConfigOption = None,
    output: Annotated[
        CheckOutput, typer.Option("-o", "--output", help="The output format; commands are those that correct labels.")
    ] = CheckOutput.TABLE,
) -> None:
    """Find labels of nodes that contradict each other, or that a scheduler misreads; exit 3 if there is a problem."""
    from gkm_cli.topology.checking import print_findings  # noqa: PLC0415 -- see build

    print_findings(nodes, config, output)


def show(
    sources: SourceOptions,
    cluster: ClusterOptions,
    *,
    pods: Annotated[
        list[Path] | None,
        typer.Option(
            "--pods",
            metavar="FILE",
            help="The output of `kubectl get pods -A -o json`, for --nodes; without it, all GPUs of these are free.",
        ),
    ] = None,
    level: Annotated[str, typer.Option("--level", help="The closest level to show; the default is all levels.")] = "",
    output: Annotated[
        ShowOutput, typer.Option("-o", "--output", help="The output format; svg is a picture, html a page with it.")
    ] = ShowOutput.TABLE,
) -> None:
    """Show the tree of lists or a cluster with the free GPUs of each domain, as a table, a picture or a page."""
    from gkm_cli.topology.showing import print_capacity  # noqa: PLC0415 -- see build

    print_capacity(sources, cluster, pods or [], level, output)


app.command(
    cls=PlainCommand,
    epilog=f"Example: {PROGRAM} topology build --nodes nodes.json --fabrics fabrics.json --ibnetdiscover ib.out "
    "-o hypernodes",
)(with_groups(build))
app.command(cls=PlainCommand, epilog=f"Example: kubectl get nodes -o json | {PROGRAM} topology check --nodes -")(check)
app.command(cls=PlainCommand, epilog=f"Example: {PROGRAM} topology show -o html > topology.html")(with_groups(show))
