"""The ConfigMap `gkm-topology`: what the controllers know of the topology and what they wait for, for people.

It has no content of a provider: no name of a switch, a cable, a GUID or a domain.
"""

from enum import StrEnum

import msgspec
from msgspec import Struct, field

from gkm.api.meta import Condition

CONFIG_MAP = "gkm-topology"
STATUS_KEY = "status"
MAX_QUARANTINED, MAX_CONFLICTS = 200, 50
"""Listed nodes and conflicts; the numbers count all."""
MAX_BYTES = 1 << 20


class ProviderState(StrEnum):
    """Starting: it has sent no event since the start of its pod. Serving: its tree is used, and is new.

    Failed: it failed, has not served since, and its last good tree is used. Stale: it has been silent for too long, and
    its last tree is used.
    """

    STARTING = "Starting"
    SERVING = "Serving"
    FAILED = "Failed"
    STALE = "Stale"


class ProviderStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A topology provider in the report. `nodes` have a place by it; it contradicts itself about `quarantined` ones.

    `reason` is why it failed last, without content of the source. `refused` counts the events that were not applied;
    `refusal` is the kind of the last one. `faults` are sentences about the data that it has read.
    """

    name: str
    state: ProviderState
    reason: str = ""
    nodes: int = 0
    quarantined: int = 0
    refused: int = 0
    refusal: str = ""
    hypernodes: int = 0
    faults: tuple[str, ...] = ()


class QuarantinedNode(Struct, frozen=True):
    """A node that lies in no domain since its place is unknown."""

    node: str
    reason: str


class ReportedConflict(Struct, frozen=True):
    """HyperNodes of other sources that cover the same nodes, so GKM does not write its own."""

    kind: str
    message: str


class TopologyStatus(Struct, frozen=True, rename="camel"):
    """The report about the topology in the ConfigMap `gkm-topology`.

    `domains` has the number of domains by level; `contradictions` is the number of a provider's claims that are not
    used. `version` is the version of the tree: equal trees have equal versions.
    """

    conditions: tuple[Condition, ...] = ()
    version: str = ""
    providers: tuple[ProviderStatus, ...] = ()
    nodes: int = 0
    placed: int = 0
    domains: dict[str, int] = field(default_factory=dict)
    contradictions: int = 0
    quarantined_nodes: int = 0
    quarantined: tuple[QuarantinedNode, ...] = ()
    conflicts: tuple[ReportedConflict, ...] = ()


class TopologyReason(StrEnum):
    """Reasons of the conditions, and of the Events about them (docs/reference/reasons.md)."""

    NOT_CHECKED = "NotChecked"
    PROVIDERS_SERVING = "ProvidersServing"
    PROVIDERS_STARTING = "ProvidersStarting"
    PROVIDER_FAILED = "ProviderFailed"
    TREE_APPROVED = "TreeApproved"
    GUARD_TRIPPED = "TopologyGuardTripped"
    UP_TO_DATE = "UpToDate"
    WRITING = "Writing"
    KIND_MISSING = "KindMissing"
    RIGHTS_MISSING = "RightsMissing"
    WRITE_FAILED = "WriteFailed"
    TOPOLOGY_BLOCKED = "TopologyBlocked"
    TOO_LARGE = "HyperNodeTooLarge"
    HYPERNODE_REFUSED = "HyperNodeRefused"
    NODE_NAME_TOO_LONG = "NodeNameTooLong"
    NO_CONFLICTS = "NoConflicts"
    HYPERNODE_CONFLICT = "HyperNodeConflict"


def parse_status(text: str) -> TopologyStatus:
    """Return the report in a JSON text.

    Raises:
        ValueError: the text is no report, or too long.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"the JSON has more than {MAX_BYTES} characters")
    try:
        return msgspec.json.decode(text, type=TopologyStatus)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
