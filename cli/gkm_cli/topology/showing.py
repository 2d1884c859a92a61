"""`gkm topology show`: read, build, count, print."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gkm.topology.usage import Usage, uncounted_flavors, uncounted_notes

from gkm_cli.inputs.cluster_lists import ALL_FREE, read_usage, unlisted_node_notes
from gkm_cli.output import Output, UsageError, show
from gkm_cli.topology import render
from gkm_cli.topology.building import build
from gkm_cli.topology.capacity import IntervalCapacity
from gkm_cli.topology.options import ShowOutput, SourceOptions
from gkm_cli.topology.render import tree_result


def print_capacity(options: SourceOptions, pods: Sequence[Path], closest: str, output: ShowOutput) -> None:
    """Print the tree with its free capacity.

    Raises:
        ConfigInvalid: the configuration cannot be used.
        OSError: a file cannot be read.
        UsageError: a file does not hold what its option needs, or there is no such level.
    """
    built = build(options, pods)
    if closest and closest not in built.tree.levels:
        raise UsageError(f"--level is {closest!a}", f"the levels are {', '.join(built.tree.levels)}")
    used = read_usage(pods) if pods else Usage()
    uncounted = uncounted_notes(uncounted_flavors(built.nodes.values(), built.settings.labels.flavor), used.claiming)
    notes = (*built.notes, *uncounted, *(unlisted_node_notes(used, built.nodes.keys()) if pods else (ALL_FREE,)))
    capacity = IntervalCapacity(built.tree, built.nodes, used, built.settings)
    if output is ShowOutput.SVG:
        for line in render.picture(built.tree, built.outline, capacity, closest):
            sys.stdout.write(line + "\n")
        return

    def figures(first: int, end: int) -> dict[str, Any]:
        sums = capacity.of(first, end)
        return {
            "gpus": sums.capacity,
            "freeGPUs": sums.free,
            "freeNodes": sums.wholly_free,
            "unusableNodes": sums.nodes - sums.usable,
        }

    result = tree_result(built.tree, built.outline, notes, figures)
    show(
        result,
        Output(output.value),
        lambda: render.render_capacity(built.tree, built.outline, capacity, notes, closest),
    )
