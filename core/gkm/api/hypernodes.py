"""HyperNode (topology.volcano.sh/v1alpha1) and the Topology of Kueue and KAI, reduced to the fields that GKM reads.

HyperNodes of all sources are read: strangers write them. The CRD does not limit the number of members or labels, so the
limits follow from etcd's largest object.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

VOLCANO_GROUP, KUEUE_GROUP, KAI_GROUP = "topology.volcano.sh", "kueue.x-k8s.io", "kai.scheduler"
API_VERSION = f"{VOLCANO_GROUP}/v1alpha1"

MAX_MEMBERS = 50_000
"""etcd accepts 1.5 MiB, and the shortest member has 60 bytes."""
MAX_LABELS = 4096

_Name = Annotated[str, Meta(max_length=253)]
_Word = Annotated[str, Meta(max_length=317)]
_Labels = Annotated[dict[_Word, _Word], Meta(max_length=MAX_LABELS)]


class ExactMatch(Struct, frozen=True, gc=False):
    """A reference to one member of a HyperNode by its name."""

    name: _Name = ""


class MemberSelector(Struct, frozen=True, rename="camel", gc=False):
    """How a HyperNode selects a member: by exact name, labels or a pattern. GKM reads only the exact name."""

    exact_match: ExactMatch | None = None


class HyperNodeMember(Struct, frozen=True, gc=False):
    """A member of a HyperNode: a Node or another HyperNode."""

    type: Literal["Node", "HyperNode"]
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(Struct, frozen=True, rename="camel", gc=False):
    """The spec of a HyperNode. Volcano before 1.14 has no `tier_name`, and its API server drops the field."""

    tier: int = 0
    tier_name: _Name = ""
    members: Annotated[tuple[HyperNodeMember, ...], Meta(max_length=MAX_MEMBERS)] | None = None


class ThinMetadata(Struct, frozen=True, rename="camel", gc=False):
    """The metadata of an object that GKM reads: name, labels, uid and resourceVersion."""

    name: _Name
    labels: _Labels | None = None
    uid: str = ""
    resource_version: str = ""


class HyperNodeObject(Struct, frozen=True, gc=False):
    """A HyperNode on the API server, written by GKM or another owner."""

    metadata: ThinMetadata
    spec: HyperNodeSpec = HyperNodeSpec()

    @property
    def name(self) -> str:
        """Return the name of the HyperNode."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels of the HyperNode."""
        return self.metadata.labels or {}


class TopologyLevelLabel(Struct, frozen=True, rename="camel", gc=False):
    """A level of a Topology of Kueue or KAI: its node label, and the other name that KAI gives it."""

    node_label: _Word = ""
    alias: _Word = ""


class SchedulerTopologySpec(Struct, frozen=True, gc=False):
    """The levels of a Topology of Kueue or KAI, from the widest to the closest."""

    levels: Annotated[tuple[TopologyLevelLabel, ...], Meta(max_length=64)] = field(default=())


class SchedulerTopology(Struct, frozen=True, gc=False):
    """A Topology of Kueue or KAI."""

    metadata: ThinMetadata
    spec: SchedulerTopologySpec = SchedulerTopologySpec()

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of the node labels of the levels, from the widest to the closest."""
        return tuple(level.node_label for level in self.spec.levels)

    @property
    def aliases(self) -> Mapping[str, str]:
        """Return KAI's other names of the levels, by node label."""
        return {level.node_label: level.alias for level in self.spec.levels if level.alias}
