"""The condition MNNVLReady of a ComputeDomain, which the controllers write as the annotation `gkm.io/mnnvl-ready`.

NVIDIA's `status.status` says Ready as soon as a domain exists, so GKM has a separate condition.
"""

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from gkm.api.meta import FALSE, Condition, Count

MNNVL_READY_TYPE = "MNNVLReady"
MAX_NAMES, MAX_CLIQUES = 16, 64
"""Isolated nodes and cliques in the annotation; the counts and the message cover all."""
MAX_TEXT = 1 << 16

_Name = Annotated[str, Meta(max_length=253)]


class ReadyReason(StrEnum):
    """Reasons of the condition MNNVLReady; if several apply, the first in this order is the reason."""

    DOMAIN_LOST = "DomainLost"
    DOMAIN_TERMINATING = "DomainTerminating"
    WAITING_FOR_PODS = "WaitingForPods"
    TEMPLATE_MISSING = "TemplateMissing"
    CLAIM_MISSING = "ClaimMissing"
    NODE_TAKEN = "NodeTaken"
    NODES_ISOLATED = "NodesIsolated"
    SEVERAL_CLIQUES = "SeveralCliques"
    PODS_PENDING = "PodsPending"
    NODES_NOT_READY = "NodesNotReady"
    ALL_NODES_READY = "AllNodesReady"


UNUSED = (ReadyReason.WAITING_FOR_PODS, "no pod uses the domain")
"""Reason and message of MNNVLReady for a domain that no pod uses."""


class CliqueMembers(Struct, frozen=True):
    """Numbers of a ComputeDomain's nodes in one NVLink clique."""

    joined: Count
    ready: Count


class MNNVLReadiness(Condition, frozen=True, rename="camel"):
    """The condition MNNVLReady with its numbers of nodes.

    Each pod is counted as one node: a node has one IMEX channel.
    """

    expected: Count = 0
    """Pods that the workload should have."""
    joined: Count = 0
    """Nodes with a pod of the workload whose IMEX daemon is in the domain; those with a pod that runs, if the hosts run
    the daemons."""
    ready: Count = 0
    """Joined nodes whose IMEX daemon is ready, on a fabric."""
    isolated: Annotated[tuple[_Name, ...], Meta(max_length=MAX_NAMES)] = ()
    """Joined nodes without a fabric."""
    cliques: Annotated[dict[_Name, CliqueMembers], Meta(max_length=MAX_CLIQUES)] = field(default_factory=dict)
    """Joined nodes by NVLink clique, the largest first."""

    def text(self) -> str:
        """Return the condition as the JSON text of the annotation."""
        return msgspec.json.encode(self).decode()


def unused(now: str) -> MNNVLReadiness:
    """Return the condition MNNVLReady of a ComputeDomain that no pod uses.

    GKM writes it when it creates the domain, to save a later request.
    """
    reason, message = UNUSED
    return MNNVLReadiness(type=MNNVL_READY_TYPE, status=FALSE, reason=reason, message=message, last_transition_time=now)


def parse_readiness(text: str | None) -> MNNVLReadiness | None:
    """Return the condition MNNVLReady in an annotation; None if it is absent or invalid."""
    if text is None or len(text) > MAX_TEXT:
        return None
    try:
        return msgspec.json.decode(text, type=MNNVLReadiness)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
