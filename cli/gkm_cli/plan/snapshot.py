"""Read nodes and pods from files, and survey them once for all runs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gkm.api.grammar import count_of
from gkm.api.topology_settings import Topology
from gkm.packing.inventory_of import Usable, inventory_of
from gkm.packing.values import Group, Share
from gkm.topology import lists
from gkm.topology.eligibility import Demand
from gkm.topology.survey import TopologySurvey, survey_nodes
from gkm.topology.usage import Usage, usage

from gkm_cli.inputs import files
from gkm_cli.output import UsageError

T = TypeVar("T")
ALL_FREE = "no --pods are given: every GPU counts as free"


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The surveyed nodes and the GPUs that pods take. `notes` are sentences for the user."""

    survey: TopologySurvey
    usage: Usage
    notes: tuple[str, ...] = ()

    def usable(self, demand: Demand) -> Usable:
        """Return the nodes that a run may use."""
        return inventory_of(self.survey, self.usage, demand)

    def with_freed_gpus(self, groups: Iterable[Group]) -> "ClusterSnapshot":
        """Return the snapshot in which the GPUs of a plan are free again, as far as pods take GPUs on those nodes."""
        freed: Counter[str] = Counter()
        for node, count in shares(groups):
            freed[node] += count
        gpus = {node: used - min(used, freed[node]) for node, used in self.usage.gpus.items()}
        return replace(self, usage=replace(self.usage, gpus=gpus))


def read(nodes: Sequence[Path], pods: Sequence[Path], settings: Topology) -> ClusterSnapshot:
    """Return the snapshot of lists; several lists form one snapshot, for instance of several clusters.

    Raises:
        OSError: a file cannot be read.
        UsageError: a file is not the expected list.
    """
    found = [_listed(lists.parse_nodes, path, "nodes") for path in nodes]
    surveyed = survey_nodes(
        [node for each in found for node in each.nodes], settings, [entry for each in found for entry in each.unread]
    )
    if not pods:
        return ClusterSnapshot(surveyed, Usage(), (ALL_FREE,))
    listed = [_listed(lists.parse_pods, path, "pods") for path in pods]
    used = usage([pod for each in listed for pod in each.pods], [entry for each in listed for entry in each.unread])
    known = {located.node.name for located in surveyed.located}
    known.update(surveyed.bare, (entry.node for entry in surveyed.quarantined))
    return ClusterSnapshot(surveyed, used, tuple(_unlisted_node_notes(used, known)))


def shares(groups: Iterable[Group]) -> Iterator[Share]:
    """Yield the GPUs that groups and their spares take of nodes."""
    for group in groups:
        yield from group.nodes
        yield from (Share(spare.node, spare.gpus) for spare in group.spares)


def _unlisted_node_notes(used: Usage, known: set[str]) -> list[str]:
    """Return a note about pods on unlisted nodes: the lists may come from two clusters."""
    unlisted = Counter({node: gpus for node, gpus in used.gpus.items() if node not in known})
    if not unlisted:
        return []
    nodes = count_of(len(unlisted), "node")
    return [
        f"pods take {count_of(unlisted.total(), 'GPU')} of {nodes} that --nodes does not list, such as {min(unlisted)}"
    ]


def _listed(parse: Callable[[Iterable[bytes]], T], path: Path, kind: str) -> T:
    try:
        return parse(files.pieces(path, kind))
    except lists.ListUnreadable as error:
        message, _, hint = str(error).rpartition("; ")
        name = f"--{kind} {files.name(path)}"
        if not message:
            message, hint = hint, "give a smaller one"
        raise UsageError(f"{name}: {message}", hint) from error
