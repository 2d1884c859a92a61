"""Nodes and pods out of files, sorted out once for all runs that are planned on them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gkm.api.grammar import count_of
from gkm.api.topology_settings import Topology
from gkm.packing.inventory_of import Usable, inventory_of
from gkm.topology import lists
from gkm.topology.eligibility import Demand
from gkm.topology.survey import TopologySurvey, survey_nodes
from gkm.topology.usage import Usage, usage

from gkm_cli.output import UsageError
from gkm_cli.plan import files

ALL_FREE = "no --pods are given: every GPU counts as free"


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """What there is and what pods take. `notes` are sentences that a person should know of."""

    survey: TopologySurvey
    usage: Usage
    notes: tuple[str, ...] = ()

    def usable(self, demand: Demand) -> Usable:
        """Return what a run may use."""
        return inventory_of(self.survey, self.usage, demand)

    def with_freed_gpus(self, gpus_by_node: Mapping[str, int]) -> "ClusterSnapshot":
        """Return the snapshot in which GPUs of a plan, by node, are free again, as far as pods take any there."""
        gpus = {node: taken - min(taken, gpus_by_node.get(node, 0)) for node, taken in self.usage.gpus.items()}
        return replace(self, usage=replace(self.usage, gpus=gpus))


def read(nodes: Sequence[Path], pods: Sequence[Path], settings: Topology) -> ClusterSnapshot:
    """Return the snapshot of some lists; several are one, as those of several clusters.

    Raises:
        OSError: a file cannot be read.
        WrongUsage: it is no such list: which, what it is, and what to give.
    """
    found = [_nodes(path) for path in nodes]
    surveyed = survey_nodes(
        [node for each in found for node in each.nodes], settings, [entry for each in found for entry in each.unread]
    )
    if not pods:
        return ClusterSnapshot(surveyed, Usage(), (ALL_FREE,))
    listed = [_pods(path) for path in pods]
    used = usage([pod for each in listed for pod in each.pods], [entry for each in listed for entry in each.unread])
    known = {located.node.name for located in surveyed.located}
    known.update(surveyed.bare, (entry.node for entry in surveyed.quarantined))
    return ClusterSnapshot(surveyed, used, tuple(_unlisted_node_notes(used, known)))


def _unlisted_node_notes(used: Usage, known: set[str]) -> list[str]:
    """Return a note about pods on nodes that are not listed: the lists may be of two clusters."""
    unlisted = Counter({node: gpus for node, gpus in used.gpus.items() if node not in known})
    if not unlisted:
        return []
    nodes = count_of(len(unlisted), "node")
    return [
        f"pods take {count_of(unlisted.total(), 'GPU')} of {nodes} that --nodes does not list, such as {min(unlisted)}"
    ]


def _nodes(path: Path) -> lists.NodeList:
    try:
        return lists.parse_nodes(files.pieces(path, "nodes"))
    except lists.ListUnreadable as error:
        raise _usage_error(path, "--nodes", error) from error


def _pods(path: Path) -> lists.PodList:
    try:
        return lists.parse_pods(files.pieces(path, "pods"))
    except lists.ListUnreadable as error:
        raise _usage_error(path, "--pods", error) from error


def _usage_error(path: Path, option: str, error: lists.ListUnreadable) -> UsageError:
    said, _, hint = str(error).rpartition("; ")
    name = f"{option} {files.name(path)}"
    return UsageError(f"{name}: {said}", hint) if said else UsageError(f"{name}: {error}", "give a smaller one")
