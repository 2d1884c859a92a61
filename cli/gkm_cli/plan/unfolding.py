"""`gkm plan unfold`: the nodes of each group of a plan, name by name, for scripts and MPI."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gkm.api.plans import PlanSpec
from gkm.hoststate.escaping import escape
from gkm.kube.resources import PLACEMENTPLANS
from gkm.packing.conversion import groups_of
from gkm.packing.values import Group

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.inputs import files
from gkm_cli.output import CommandFailed, UsageError, line, show
from gkm_cli.plan import plan_files
from gkm_cli.plan.options import UnfoldOutput

Json = dict[str, Any]
# <run>-<number>, as the controllers name plans; the file of such a name is ./<run>-<number>.
_PLAN_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,250}-[0-9]{1,10}")


def print_nodes(plan: str, cluster: ClusterOptions, namespace: str, output: UnfoldOutput) -> None:
    """Print the nodes of each group of a plan in a file or of the cluster.

    Raises:
        CommandFailed: the cluster has no such plan, or cannot be read.
        OSError: the file cannot be read.
        UsageError: the file holds no plan, an invalid one, or one without groups.
    """
    in_cluster = _PLAN_NAME.fullmatch(plan) is not None
    where = f"PlacementPlan {plan}" if in_cluster else files.name(Path(plan))
    spec = _from_cluster(plan, cluster, namespace) if in_cluster else plan_files.read_spec(Path(plan), where)
    with plan_files.readable(where):
        groups = groups_of(spec)
    if not groups:
        raise UsageError(
            f"{where} has no groups: a host file without nodes would start no process",
            "plan the run again: gkm plan --run FILE",
        )
    if output in (UnfoldOutput.JSON, UnfoldOutput.YAML):
        show(_result(spec, groups), output, lambda: None)
        return
    for text in _lines(groups) if output is UnfoldOutput.LIST else _hostfile(groups):
        line(text)


def _from_cluster(name: str, options: ClusterOptions, namespace: str) -> PlanSpec:
    from gkm_cli.clusters.connection import connected  # noqa: PLC0415 -- a file needs no cluster
    from gkm_cli.clusters.reads import get  # noqa: PLC0415 -- as above

    cluster = connected(options, namespace)
    found = get(cluster.api, PLACEMENTPLANS, name, namespace or cluster.namespace)
    if found is None:
        where = f"in the namespace {namespace or cluster.namespace}"
        raise CommandFailed(f"there is no PlacementPlan {name} {where}; kubectl get placementplans -A lists all")
    return found.spec


def _lines(groups: Sequence[Group]) -> Iterator[str]:
    for group in groups:
        yield f"{group.index}: {' '.join(share.node for share in group.nodes)}"
        if group.spares:
            yield f"{group.index} spares: {' '.join(dict.fromkeys(spare.node for spare in group.spares))}"


def _hostfile(groups: Sequence[Group]) -> Iterator[str]:
    """Yield the lines of a hostfile of MPI: a slot for each GPU. Spares are left out, since MPI would use them."""
    for group in groups:
        # A place is text of labels: no line of it may become one of the file.
        yield f"# group {group.index}: {escape('/'.join(group.place))}"
        yield from (f"{share.node} slots={share.gpus}" for share in group.nodes)


def _result(spec: PlanSpec, groups: Sequence[Group]) -> Json:
    return {
        "hash": spec.hash,
        "run": spec.run,
        "gpus": spec.gpus,
        "groups": [
            {
                "index": group.index,
                "gpus": group.gpus,
                **group.place._asdict(),
                "scope": group.scope,
                "nodeNames": [share.node for share in group.nodes],
                "nodes": [{"name": share.node, "gpus": share.gpus} for share in group.nodes],
                "spares": [
                    {
                        "node": spare.node,
                        "gpus": spare.gpus,
                        "domain": "/".join(spare.place),
                        "distance": spare.distance,
                    }
                    for spare in group.spares
                ],
            }
            for group in groups
        ],
    }
