"""The members of a family as admission watches them, and their order (docs/decisions/0046-families.md). Pure."""

from collections.abc import Iterable

from gkm.api.caches import HELD_BACK, ImageVolume
from gkm.api.meta import TRUE
from msgspec import Struct, structs


class ThinCondition(Struct, frozen=True, gc=False):
    """A condition of a GKMCache or ClusterGKMCache, reduced to its type and status."""

    type: str
    status: str = ""


class ThinStatus(Struct, frozen=True, rename="camel", gc=False):
    """The fields of a cache's status that decide whether and how a pod gets it.

    `image` is the spec.image that the status is about.
    """

    runtime: str = ""
    image: str = ""
    image_volume: ImageVolume | None = None
    conditions: tuple[ThinCondition, ...] = ()
    held_back: bool = False

    def __post_init__(self) -> None:
        held = any((each.type, each.status) == (HELD_BACK, TRUE) for each in self.conditions)
        for name, value in (("held_back", held), ("conditions", ())):
            structs.force_setattr(self, name, value)


class Secret(Struct, frozen=True, gc=False):
    """A reference to an image pull Secret of a cache."""

    name: str = ""


class ThinSpec(Struct, frozen=True, rename="camel", gc=False):
    """The fields of a cache's spec that decide which pods and nodes use it."""

    family: str = ""
    generation: int | None = None
    pinned: bool | None = None
    image: str = ""
    image_pull_secrets: tuple[Secret, ...] = ()
    node_selector: dict[str, str] | None = None


class ThinMetadata(Struct, frozen=True, rename="camel", gc=False):
    """The name of a cache, and the time of its creation. `namespace` is None for a ClusterGKMCache."""

    name: str
    namespace: str | None = None
    creation_timestamp: str = ""


class ThinCache(Struct, frozen=True, gc=False):
    """A GKMCache or ClusterGKMCache as the webhook's watch holds it, reduced to a few fields."""

    metadata: ThinMetadata
    spec: ThinSpec = ThinSpec()
    status: ThinStatus = ThinStatus()

    @property
    def image_volume(self) -> ImageVolume | None:
        """Return the verified image of the cache as a volume, None unless it belongs to the present spec.image."""
        return self.status.image_volume if self.status.image == self.spec.image else None

    def outline(self, why: str) -> "ThinCache":  # noqa: ARG002 -- see gkm.kube.memory.HasOutline
        """Return a copy without its image, Secrets and node selector; it cannot be an image volume."""
        spec = structs.replace(self.spec, image="", image_pull_secrets=(), node_selector=None)
        return structs.replace(self, spec=spec)


def in_order(members: Iterable[ThinCache]) -> list[ThinCache]:
    """Return members of a family in the order in which nodes prefer them, as far as that is equal on every node."""
    by_name = sorted(members, key=lambda member: member.metadata.name)
    newest = sorted(by_name, key=lambda member: member.metadata.creation_timestamp, reverse=True)
    return sorted(newest, key=_rank)


def _rank(member: ThinCache) -> tuple[bool, bool, int]:
    pinned = bool(member.spec.pinned)
    return not pinned, member.status.held_back and not pinned, -(member.spec.generation or 0)
