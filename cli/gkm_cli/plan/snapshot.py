"""The nodes and used GPUs of a cluster, surveyed once for all runs; from files."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gkm.api.topology_settings import Topology
from gkm.packing.inventory_of import Usable, inventory_of
from gkm.packing.values import Group
from gkm.topology.eligibility import NodeDemand
from gkm.topology.survey import TopologySurvey, survey_nodes
from gkm.topology.usage import Usage

from gkm_cli.inputs.cluster_lists import ALL_FREE, read_nodes, read_usage, unlisted_node_notes


@dataclass(frozen=True, slots=True)
class SurveyedCluster:
    """The surveyed nodes and the GPUs that pods take. `notes` are sentences for the user.

    `reserved` are GPUs by node that plans of other runs hold. With `own_is_free`, what the runs to be planned have
    themselves is in none of the two.
    """

    survey: TopologySurvey
    usage: Usage
    notes: tuple[str, ...] = ()
    reserved: Mapping[str, int] = field(default_factory=dict)
    own_is_free: bool = False

    @property
    def flavors(self) -> frozenset[str]:
        """Return the flavors of nodes with GPUs."""
        return frozenset(located.flavor for located in self.survey.located if located.gpus and located.flavor)

    def usable(self, demand: NodeDemand) -> Usable:
        """Return the nodes that a run may use."""
        return inventory_of(self.survey, self.usage, demand, self.reserved)

    def with_freed_gpus(self, groups: Iterable[Group]) -> "SurveyedCluster":
        """Return the snapshot in which the GPUs of a plan are free again, as far as pods take GPUs on those nodes."""
        freed: Counter[str] = Counter()
        for share in (share for group in groups for share in group.shares):
            freed[share.node] += share.gpus
        gpus = {node: used - min(used, freed[node]) for node, used in self.usage.gpus.items()}
        return replace(self, usage=replace(self.usage, gpus=gpus))


def read(nodes: Sequence[Path], pods: Sequence[Path], settings: Topology) -> SurveyedCluster:
    """Return the snapshot of lists; several lists form one snapshot, for instance of several clusters.

    Raises:
        OSError: a file cannot be read.
        UsageError: a file is not the expected list.
    """
    listed = read_nodes(nodes)
    surveyed = survey_nodes(listed.nodes, settings, listed.unread)
    if not pods:
        return SurveyedCluster(surveyed, Usage(), (ALL_FREE,))
    known = {located.node.name for located in surveyed.located}
    known.update(surveyed.bare, (entry.node for entry in surveyed.quarantined))
    used = read_usage(pods)
    return SurveyedCluster(surveyed, used, unlisted_node_notes(used, known))
