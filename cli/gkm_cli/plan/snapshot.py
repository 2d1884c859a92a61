"""The nodes and used GPUs of a cluster, surveyed once for all runs; from files."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gkm.api.topology_settings import Topology
from gkm.packing.usable_nodes import UsableNodes, usable_nodes
from gkm.packing.values import Group
from gkm.topology.eligibility import NodeDemand, PodDemand
from gkm.topology.nodes import Node
from gkm.topology.survey import TopologySurvey, survey_nodes
from gkm.topology.usage import Usage, uncounted_notes

from gkm_cli.inputs.cluster_lists import ALL_FREE, read_nodes, read_usage, unlisted_node_notes

NO_REQUESTS = (
    "CPU or memory of a pod is not given (spec.requests, or --cpu and --memory): a node may be used where one GPU's "
    "share of it is free, which may be too little for the pod"
)


@dataclass(frozen=True, slots=True)
class SurveyedCluster:
    """The surveyed nodes and the GPUs that pods take. `notes` are sentences for the user.

    `reserved` are GPUs by node that plans of other runs hold. With `own_is_free`, both leave out the GPUs of the runs
    to be planned. Pods of these runs need not start on `own_nodes`: they are there.
    """

    survey: TopologySurvey
    usage: Usage
    notes: tuple[str, ...] = ()
    reserved: Mapping[str, int] = field(default_factory=dict)
    own_is_free: bool = False
    own_nodes: frozenset[str] = frozenset()

    @property
    def node_gpus(self) -> Mapping[str, int]:
        """Return the flavors of nodes with GPUs, each with the GPUs that most of its nodes have.

        Where all nodes are quarantined, these are the flavors that their labels name, with 0 GPUs.
        """
        found: dict[str, Counter[int]] = {}
        for located in self.survey.located:
            if located.gpus and located.flavor:
                found.setdefault(located.flavor, Counter())[located.gpus] += 1
        if not found:
            return dict.fromkeys(self.survey.quarantined_flavors.values(), 0)
        return {name: max(counts, key=lambda gpus: (counts[gpus], gpus)) for name, counts in found.items()}

    def usable(self, demand: NodeDemand) -> UsableNodes:
        """Return the nodes of the cluster that a run may use."""
        return usable_nodes(self.survey, self.usage, demand, self.reserved, self.own_nodes)

    def with_freed_gpus(self, groups: Iterable[Group]) -> "SurveyedCluster":
        """Return the snapshot after the GPUs of a plan are freed, as far as pods use GPUs on its nodes."""
        freed: Counter[str] = Counter()
        for share in (share for group in groups for share in group.shares):
            freed[share.node] += share.gpus
        gpus = {node: used - min(used, freed[node]) for node, used in self.usage.gpus.items()}
        return replace(self, usage=replace(self.usage, gpus=gpus), own_nodes=frozenset(freed))

    def with_request_note(self, pods: Iterable[PodDemand]) -> "SurveyedCluster":
        """Return the snapshot with a note, if these are pods without requests and nodes report what is free."""
        unknown = any(pod.cpu is None or pod.memory is None for pod in pods)
        reported = bool(self.usage.loads) and any(_reports(located.node) for located in self.survey.located)
        return replace(self, notes=(*self.notes, NO_REQUESTS)) if unknown and reported else self


def _reports(node: Node) -> bool:
    resources = node.status.allocatable
    return resources is not None and (resources.cpu, resources.memory) != (None, None)


def read(
    nodes: Sequence[Path], pods: Sequence[Path], settings: Topology, claims: Sequence[Path] = ()
) -> SurveyedCluster:
    """Return the snapshot of lists in files; several lists form one snapshot, for instance of several clusters.

    Raises:
        OSError: a file cannot be read.
        UsageError: a file is not the expected list.
    """
    listed = read_nodes(nodes)
    surveyed = survey_nodes(listed.nodes, settings, listed.unread)
    if not pods:
        return SurveyedCluster(surveyed, Usage(), (ALL_FREE, *uncounted_notes(surveyed.uncounted, {})))
    known = {located.node.name for located in surveyed.located}
    known.update(surveyed.bare, (entry.node for entry in surveyed.quarantined))
    used = read_usage(pods, claims)
    notes = (*unlisted_node_notes(used, known), *uncounted_notes(surveyed.uncounted, used.claiming))
    return SurveyedCluster(surveyed, used, notes)
