"""Decide the condition MNNVLReady of a ComputeDomain: the first cause that applies is its reason. Pure.

The order of causes: a cause that makes others meaningless precedes them, and a cause that a person must repair precedes
temporary causes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gkm.api.computedomains import ComputeDomain, DomainNode
from gkm.api.domain_readiness import (
    MAX_CLIQUES,
    MAX_NAMES,
    MNNVL_READY_TYPE,
    UNUSED,
    CliqueMembers,
    MNNVLReadiness,
    ReadyReason,
)
from gkm.api.grammar import agree, count_of, listed
from gkm.api.imex import IMEXMode
from gkm.api.meta import FALSE, TRUE
from gkm.api.mnnvl_metadata import FINALIZER, NODE_LABEL
from gkm.api.resource_claims import ResourceClaimTemplate
from gkm.hoststate.escaping import escape

from gkm_operator.pods import WatchedPod


@dataclass(frozen=True, slots=True)
class ObservedDomain:
    """The facts about a domain. `template` has the name in the domain's spec, but may belong to another domain."""

    domain: ComputeDomain
    pods: Sequence[WatchedPod] = ()
    """The living pods that use the domain's claim template."""
    unclaimed: Sequence[WatchedPod] = ()
    """Living pods that have the domain's label and request GPUs, but did not get its claim at admission."""
    replicas: int | None = None
    """The number of pods that the domain's PodCliques should have, None if no PodClique uses it."""
    template: ResourceClaimTemplate | None = None
    template_owner: str = ""
    """The ComputeDomain that the claim template was made for, "" if absent."""
    taken: Mapping[str, str] = field(default_factory=dict)
    """Nodes of the domain's pods that another ComputeDomain uses, each with that domain's name if users may see it."""
    host_imex: bool = False
    """Whether the hosts run the IMEX daemons: then no node joins, and no node is reported."""

    @property
    def expected(self) -> int:
        """Return the number of pods, and so of nodes, that the ComputeDomain should have."""
        return len(self.pods) + len(self.unclaimed) if self.replicas is None else self.replicas

    @property
    def nodes(self) -> frozenset[str]:
        """Return the names of the nodes on which the domain's pods run."""
        return frozenset(pod.node for pod in self.pods if pod.node)

    @property
    def members(self) -> list[DomainNode]:
        """Return the entries of the domain's status for nodes that run one of its pods."""
        nodes = self.nodes
        return [node for node in self.domain.status.nodes or () if node.name in nodes]

    @property
    def joined_nodes(self) -> frozenset[str]:
        """Return the names of the nodes that have joined the ComputeDomain.

        Where the hosts run IMEX, NVIDIA's driver asks the daemon of the host when it prepares the claim of a pod, so
        that a pod that runs is the only sign.
        """
        if self.host_imex:
            return frozenset(pod.node for pod in self.pods if pod.running and pod.node)
        return frozenset(node.name for node in self.members)

    @property
    def ready_nodes(self) -> frozenset[str]:
        """Return the names of the joined nodes that can reach each other over NVLink."""
        return self.joined_nodes if self.host_imex else frozenset(node.name for node in self.members if node.ready)

    @property
    def serves(self) -> bool:
        """Return whether the domain still works for its pods: the claim template has the domain's uid."""
        template = self.template
        return template is not None and template.metadata.label(NODE_LABEL) == self.domain.metadata.uid

    @property
    def is_leaving(self) -> bool:
        """Return whether the domain is being deleted as intended: no pod uses it, or GKM released it."""
        meta = self.domain.metadata
        released = self.domain.written_by_gkm and FINALIZER not in (meta.finalizers or ())
        return meta.terminating and (released or not self.pods)

    @property
    def stale(self) -> list[WatchedPod]:
        """Return pods that started before the domain was created, so that they use channels of an earlier domain.

        The clock of a node may be slow, so a pod is included only if it was created before as well, by the API server's
        clock, and if its node has not joined. A channel of the host belongs to no domain, so no channel is lost with a
        domain.
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


_SHOWN = 5
"""Limit of names in a message."""
_LONGEST_CLIQUE = 63
"""Limit of characters of a clique name in a message; NVIDIA's identifiers have 47."""

HOST_MANAGED = IMEXMode.HOST_MANAGED.value
Cause = tuple[ReadyReason, str]


def readiness(
    observed: ObservedDomain, old: MNNVLReadiness | None, now: str, *, is_new: bool = False
) -> MNNVLReadiness:
    """Return the condition MNNVLReady of a domain; `now` is its transition time if its status differs from `old`.

    NVIDIA's controller needs a moment for the claim template of a domain that `is_new`.
    """
    reason, message = next(_causes(observed, is_new=is_new))
    status = TRUE if reason is ReadyReason.ALL_NODES_READY else FALSE
    members = observed.members
    return MNNVLReadiness(
        type=MNNVL_READY_TYPE,
        status=status,
        reason=reason,
        message=message + _shared_nodes(observed),
        last_transition_time=old.last_transition_time if old and old.status == status and _is_time(old) else now,
        expected=observed.expected,
        joined=len(observed.joined_nodes),
        ready=len(observed.ready_nodes),
        isolated=tuple(sorted(node.name for node in members if node.isolated)[:MAX_NAMES]),
        cliques=_cliques(members),
    )


def _causes(observed: ObservedDomain, *, is_new: bool) -> Iterator[Cause]:
    """Yield the causes that hold, the most important first, and at last that all is well."""
    yield from _lost(observed)
    if not observed.expected and not observed.pods:
        yield UNUSED
    if observed.template is not None or not is_new:
        yield from _template_missing(observed)
    if pods := observed.unclaimed:
        why = "because the webhook of GKM did not run or MNNVL was off"
        yield ReadyReason.CLAIM_MISSING, f"{_pods(pods)} with its label got no claim, {why}: create them again"
    yield from _misplaced(observed)
    yield from _incomplete(observed)
    count = count_of(len(observed.nodes), "node")
    how = f"run its pods, on the IMEX daemons of their hosts ({HOST_MANAGED}): no daemon is reported"
    yield ReadyReason.ALL_NODES_READY, f"{count} {how if observed.host_imex else 'joined and ready'}"


def _lost(observed: ObservedDomain) -> Iterator[Cause]:
    deleted = f"the ComputeDomain was deleted while {_pods(observed.pods)} used it"
    if observed.domain.metadata.terminating and not observed.serves and not observed.host_imex:
        again = "its pods must restart once it exists again"
        yield ReadyReason.DOMAIN_LOST, f"{deleted}, and NVIDIA's controller removes its nodes: {again}"
    if stale := observed.stale:
        created = observed.domain.metadata.creation_timestamp
        why = f"started before this ComputeDomain was created ({created}), in a domain that was lost"
        yield ReadyReason.DOMAIN_LOST, f"{_pods(stale)} {why}: delete them, so that they start again"
    if observed.domain.metadata.terminating:
        again = "it works until they have ended, and is created again then if it is required"
        yield ReadyReason.DOMAIN_TERMINATING, f"{deleted}: {again}"


def _template_missing(observed: ObservedDomain) -> Iterator[Cause]:
    name = f"the ResourceClaimTemplate {escape(observed.domain.template)}"
    if observed.template is None:
        yield ReadyReason.TEMPLATE_MISSING, f"{name} does not exist: check NVIDIA's compute-domain-controller"
    elif not observed.serves:
        yield ReadyReason.TEMPLATE_MISSING, f"{name} {_not_its_own(observed, observed.template)}"


def _not_its_own(observed: ObservedDomain, template: ResourceClaimTemplate) -> str:
    """Return whose a claim template is, and what to do. The template of a living domain must stay: pods may use it."""
    if other := observed.template_owner:
        again = "create one of the two again, with another spec.channel.resourceClaimTemplate.name"
        return f"belongs to the ComputeDomain {escape(other)}, which names it as well: {again}"
    uid = template.metadata.label(NODE_LABEL)
    foreign = f"was made for a ComputeDomain that this namespace does not have (uid {escape(uid)})"
    whose = foreign if uid else "is not of NVIDIA's controller"
    return f"{whose}: delete it if it is unused, so that NVIDIA's controller makes its own"


def _misplaced(observed: ObservedDomain) -> Iterator[Cause]:
    """Yield which nodes can never join as they are."""
    if taken := observed.taken:
        others = (f"{node} ({escape(taken[node])})" for node in taken)
        count = f"{count_of(len(taken), 'node')} of its pods"
        yield ReadyReason.NODE_TAKEN, f"another ComputeDomain has the IMEX channel of {count}: {_names(others)}"
    members = observed.members
    if isolated := [node.name for node in members if node.isolated]:
        count = f"{len(isolated)} of {count_of(len(members), 'joined node')}"
        yield ReadyReason.NODES_ISOLATED, f"{count} have no NVLink fabric: {_names(map(escape, isolated))}"
    if len(cliques := _cliques(members)) > 1:
        sizes = (f"{escape(name)} ({count_of(clique.joined, 'node')})" for name, clique in cliques.items())
        yield ReadyReason.SEVERAL_CLIQUES, f"there is no NVLink between the cliques of its nodes: {_names(sizes)}"


def _incomplete(observed: ObservedDomain) -> Iterator[Cause]:
    """Yield what usually passes by itself."""
    wanted = max(observed.expected, len(observed.pods))
    waiting = [pod for pod in observed.pods if not pod.node]
    if (placed := len(observed.pods) - len(waiting)) < wanted:
        pending = f"; pending: {_names(pod.metadata.name for pod in waiting)}" if waiting else ""
        yield ReadyReason.PODS_PENDING, f"{placed} of {count_of(wanted, 'pod')} run on a node{pending}"
    if observed.host_imex:
        yield from _starting(observed)
    elif absent := observed.nodes - observed.ready_nodes:
        count = f"{len(absent)} of {count_of(len(observed.nodes), 'node')}"
        yield ReadyReason.NODES_NOT_READY, f"{count} have no ready IMEX daemon: {_names(absent)}"


def _starting(observed: ObservedDomain) -> Iterator[Cause]:
    """Yield which pods do not run yet, where the hosts run IMEX."""
    starting = [pod.metadata.name for pod in observed.pods if not pod.running]
    if starting:
        count = f"{len(observed.pods) - len(starting)} of {count_of(len(observed.pods), 'pod')} run"
        starts = f"and {_names(starting)} {agree(len(starting), 'starts', 'start')}"
        why = f"NVIDIA's driver asks the IMEX daemon of the host then ({HOST_MANAGED})"
        yield ReadyReason.PODS_PENDING, f"{count}, {starts}: {why}"


def _shared_nodes(observed: ObservedDomain) -> str:
    """Return a warning about nodes with several pods, or ""."""
    pods = Counter(pod.node for pod in observed.pods if pod.node)
    shared = [node for node, count in pods.items() if count > 1]
    return f". Several of its pods share one IMEX channel, of {_names(shared)}" if shared else ""


def _cliques(members: Sequence[DomainNode]) -> dict[str, CliqueMembers]:
    joined = Counter(node.clique_id[:_LONGEST_CLIQUE] for node in members if not node.isolated)
    ready = Counter(node.clique_id[:_LONGEST_CLIQUE] for node in members if node.ready)
    largest = sorted(joined, key=lambda name: (-joined[name], name))[:MAX_CLIQUES]
    return {name: CliqueMembers(joined[name], ready[name]) for name in largest}


def _is_time(condition: MNNVLReadiness) -> bool:
    try:
        return datetime.fromisoformat(condition.last_transition_time).tzinfo is not None
    except ValueError:
        return False


def _pods(pods: Sequence[WatchedPod]) -> str:
    return f"{count_of(len(pods), 'pod')} ({_names(pod.metadata.name for pod in pods)})"


def _names(names: Iterable[str]) -> str:
    """Return some names in alphabetical order, so that equal facts give equal messages."""
    return listed(sorted(names), _SHOWN)
