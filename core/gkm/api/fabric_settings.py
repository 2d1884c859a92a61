"""The section `fabric` of the configuration: programs that read the fabric, settle thresholds, InfiniBand survey."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gkm.api.meta import seconds_of

SHORTEST_SECONDS, LONGEST_SECONDS = 60, 7 * 86_400

# Absolute and without "..": the agent runs the program as root and must not search for it.
Program = Annotated[str, Meta(max_length=255, pattern=r"^(/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)*\Z")]
AGENTS_KEYS = ("gkm.io/", "cache.gkm.io/")
"""Label keys that agents can write on their own nodes (deploy/base/fabric-policy.yaml)."""
LabelText = Annotated[str, Meta(max_length=63)]


class SettleThresholds(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How many readings, and how many seconds, a worse health or another domain must last before it is reported."""

    readings: Annotated[int, Meta(ge=1, le=100)] = 3
    seconds: Annotated[float, Meta(ge=0, le=3600)] = 90.0


class Ibnetdiscover(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The nodes that run ibnetdiscover, and the interval (`30m`, `1h30m`). One node of each subnet is enough."""

    nodes: Annotated[list[Annotated[str, Meta(max_length=253)]], Meta(max_length=1000)] = field(default_factory=list)
    node_selector: Annotated[dict[Annotated[str, Meta(max_length=317)], LabelText], Meta(max_length=16)] = field(
        default_factory=dict
    )
    interval: Annotated[str, Meta(max_length=16, pattern=r"^([0-9]{1,3}h)?([0-9]{1,4}m)?([0-9]{1,5}s)?\Z")] = "1h"
    command: Program = ""

    def __post_init__(self) -> None:
        if not SHORTEST_SECONDS <= self.interval_seconds <= LONGEST_SECONDS:
            raise ValueError(f"interval is {self.interval!r}; it must be from 1m to {LONGEST_SECONDS // 3600}h")
        if chosen := [key for key in self.node_selector if key.startswith(AGENTS_KEYS)]:
            raise ValueError(
                f"nodeSelector has {min(chosen)!r}, which agents can write on their nodes: any could choose its own; "
                "use another key"
            )

    @property
    def interval_seconds(self) -> int:
        """Return the interval between InfiniBand surveys in seconds."""
        return seconds_of(self.interval)

    def chooses(self, node: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether the configuration chooses a node for the survey, by name or labels.

        None while the labels are unknown.
        """
        selected = bool(self.node_selector) and labels is not None and self.node_selector.items() <= labels.items()
        return node in self.nodes or selected


class Fabric(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How the agent reads the fabric of its node. For an empty command it uses the path in Debian and RHEL.

    With `node_conditions`, the controllers write the condition NVLinkFabricHealthy on Nodes. While it is False, a Node
    has a taint with the effect `node_taint` besides. NoExecute is no choice: a wrong reading of many
    nodes would end their pods.
    """

    cache_labels: bool = False
    lldpcli: Program = ""
    settle: SettleThresholds = field(default_factory=SettleThresholds)
    ibnetdiscover: Ibnetdiscover = field(default_factory=Ibnetdiscover)
    node_conditions: bool = False
    node_taint: Literal["none", "PreferNoSchedule", "NoSchedule"] = "none"

    def __post_init__(self) -> None:
        if self.node_taint != "none" and not self.node_conditions:
            raise ValueError("nodeTaint needs nodeConditions: true, or no Node says why it has the taint")
