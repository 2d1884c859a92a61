"""A ComputeDomain with all that the watches show of it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gkm.api.computedomains import ComputeDomain, DomainNode
from gkm.api.mnnvl_metadata import FINALIZER, NODE_LABEL
from gkm.api.resource_claims import ResourceClaimTemplate

from gkm_operator.pods import WatchedPod


@dataclass(frozen=True, slots=True)
class ObservedDomain:
    """`template` is the claim template of the name in the domain's spec; it may belong to another domain."""

    domain: ComputeDomain
    pods: Sequence[WatchedPod] = ()
    """The living pods that use its claim template."""
    unclaimed: Sequence[WatchedPod] = ()
    """The living pods that have its label and request GPUs, and that admission should have given its claim."""
    replicas: int | None = None
    """The pods that its PodCliques should have, None without a PodClique."""
    template: ResourceClaimTemplate | None = None
    template_owner: str = ""
    """The existing ComputeDomain of its namespace that the claim template was made for, "" without one."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """The nodes of its pods that another ComputeDomain holds, each with that one as users of the namespace see it."""
    host_imex: bool = False
    """Whether the hosts run the IMEX daemons: then no node joins, and none is reported."""

    @property
    def expected(self) -> int:
        """Return the number of pods, and so of nodes, that the domain should have."""
        return len(self.pods) + len(self.unclaimed) if self.replicas is None else self.replicas

    @property
    def nodes(self) -> frozenset[str]:
        """Return the nodes of its pods."""
        return frozenset(pod.node for pod in self.pods if pod.node)

    @property
    def members(self) -> list[DomainNode]:
        """Return the joined nodes that have one of its pods; others are on their way out."""
        nodes = self.nodes
        return [node for node in self.domain.status.nodes or () if node.name in nodes]

    @property
    def joined_nodes(self) -> frozenset[str]:
        """Return the nodes that are in the domain.

        Where the hosts run IMEX, NVIDIA's driver asks the daemon of the host when it prepares the claim of a pod, so
        that a pod that runs is the only sign.
        """
        if self.host_imex:
            return frozenset(pod.node for pod in self.pods if pod.running and pod.node)
        return frozenset(node.name for node in self.members)

    @property
    def ready_nodes(self) -> frozenset[str]:
        """Return the nodes that are in the domain and can reach each other."""
        return self.joined_nodes if self.host_imex else frozenset(node.name for node in self.members if node.ready)

    @property
    def serves(self) -> bool:
        """Return whether its claim template is its own: a used one also outlives the deletion of the domain."""
        template = self.template
        return template is not None and template.metadata.label(NODE_LABEL) == self.domain.metadata.uid

    @property
    def is_leaving(self) -> bool:
        """Return whether it is being deleted as it should be: no pod uses it, or GKM released it."""
        meta = self.domain.metadata
        released = self.domain.written_by_gkm and FINALIZER not in (meta.finalizers or ())
        return meta.terminating and (released or not self.pods)

    @property
    def stale(self) -> list[WatchedPod]:
        """Return the pods that started before the domain was created: they have channels of a lost one.

        The clock of a node may be slow, so a pod counts only if it was created before as well, by the API server's
        clock, and if its node has not joined. A channel of the host belongs to no domain, so none is lost with one.
        """
        if self.host_imex:
            return []
        created, joined = self.domain.metadata.creation_timestamp, {node.name for node in self.members}
        return [
            pod
            for pod in self.pods
            if pod.metadata.creation_timestamp < created
            and "" < pod.started < created
            and pod.node not in joined
            and not pod.metadata.terminating
        ]
