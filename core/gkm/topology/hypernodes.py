"""HyperNodes as values: what providers send, what the controllers want, and what the API server has.

A HyperNode is a domain of the network (topology.volcano.sh/v1alpha1). Its members are nodes or other HyperNodes.
"""

from typing import Literal, NamedTuple

from msgspec import Struct

MemberKind = Literal["Node", "HyperNode"]

# Volcano's label for the origin of a HyperNode, and the value that marks ours. Objects with another value are foreign.
SOURCE_LABEL = "volcano.sh/network-topology-source"
SOURCE = "gkm"


class Member(NamedTuple):
    """A member of a HyperNode, by its exact name."""

    kind: MemberKind
    name: str


class HyperNode(Struct, frozen=True):
    """A domain of the network. `tier` rises from the members to the HyperNode; 0 is unknown, as providers may leave it.

    `tier_name` is the name of a level (`topology.levels`). The order of `members` has no meaning; values that GKM makes
    have them sorted.
    """

    name: str
    tier_name: str
    members: tuple[Member, ...]
    tier: int = 0
