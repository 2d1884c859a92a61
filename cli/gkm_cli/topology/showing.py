"""`gkm topology show`: read, build, count, print."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gkm.topology.usage import uncounted_flavors, uncounted_notes

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.inputs.cluster_lists import ALL_FREE, read_usage, unlisted_node_notes
from gkm_cli.output import UsageError, show
from gkm_cli.page import Page
from gkm_cli.terminal import Sheet, Terminal
from gkm_cli.topology import render
from gkm_cli.topology.building import Built, build, of_cluster
from gkm_cli.topology.capacity import IntervalCapacity
from gkm_cli.topology.options import ShowOutput, SourceOptions
from gkm_cli.topology.render import tree_result


def print_capacity(
    options: SourceOptions, where: ClusterOptions, pods: Sequence[Path], closest: str, output: ShowOutput
) -> None:
    """Print the tree of the topology with the free GPUs of each domain.

    Raises:
        CommandFailed: there are no lists, and the cluster cannot be read.
        ConfigInvalid: the configuration cannot be used.
        OSError: a file cannot be read.
        UsageError: a file does not hold what its option needs, or there is no such level.
    """
    if pods and not options.nodes:
        raise UsageError("--pods is given without --nodes", "give --nodes too, or leave --pods out to read the cluster")
    cluster = of_cluster(options, where, with_usage=True)
    built = build(options, pods, cluster)
    if closest and closest not in built.tree.levels:
        raise UsageError(
            f"--level {closest!a} is no level of the topology", f"the levels are {', '.join(built.tree.levels)}"
        )
    used = cluster.usage if cluster else read_usage(pods)
    uncounted = uncounted_notes(uncounted_flavors(built.nodes.values(), built.settings.labels.flavor), used.claiming)
    notes = (*built.notes, *uncounted)
    if not cluster:
        notes += unlisted_node_notes(used, built.nodes.keys()) if pods else (ALL_FREE,)
    capacity = IntervalCapacity(built.tree, built.nodes, used, built.settings)
    if output in (ShowOutput.SVG, ShowOutput.HTML):
        picture = render.picture(built.tree, built.outline, capacity, closest)
        lines = picture if output is ShowOutput.SVG else _page(built, capacity, notes, closest, picture)
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return

    def figures(first: int, end: int) -> dict[str, Any]:
        sums = capacity.of(first, end)
        return {
            "gpus": sums.capacity,
            "freeGPUs": sums.free,
            "freeNodes": sums.wholly_free,
            "unusableNodes": sums.nodes - sums.usable,
        }

    result = tree_result(built.tree, built.outline, notes, figures, closest)
    show(result, output, lambda: _render(Terminal(), built, capacity, notes, closest))


def _render(sheet: Sheet, built: Built, capacity: IntervalCapacity, notes: Sequence[str], closest: str) -> None:
    render.render_capacity(sheet, built.tree, built.outline, capacity, closest)
    render.render_problems(sheet, built.tree, notes)


def _page(
    built: Built, capacity: IntervalCapacity, notes: Sequence[str], closest: str, picture: Iterable[str]
) -> Iterator[str]:
    page = Page("Topology")
    page.picture(picture)
    _render(page, built, capacity, notes, closest)
    return page.html()
