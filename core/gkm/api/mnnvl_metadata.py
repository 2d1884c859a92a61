"""Labels, annotations and finalizers of ComputeDomains and of the workloads that use them, and metadata with only them.

The values follow Grove's code where its design document differs (docs/about/differences.md).
"""

from typing import Self

from msgspec import Struct, structs

FINALIZER = "grove.io/computedomain-finalizer"
DOMAIN_LABEL = "gkm.io/compute-domain"
"""On a pod or PodClique: the name of its ComputeDomain. On a ComputeDomain: GKM made it for that label."""
WRITER_LABEL = "gkm.io/written-by"
WRITER = "gkm"
"""On every ComputeDomain that GKM made: Grove's own operator writes the same names and all other labels."""
PODS_USING = "gkm.io/pods-using"
"""Annotation of a ComputeDomain and of its ResourceClaimTemplate: the number of pods that use it, as a decimal."""
USED_BY = "gkm.io/used-by"
"""Annotation beside PODS_USING: the names of some of these pods, for messages."""
MNNVL_READY = "gkm.io/mnnvl-ready"
"""Annotation of a ComputeDomain: the condition MNNVLReady as JSON."""

NODE_LABEL = "resource.nvidia.com/computeDomain"
"""On a node, from NVIDIA's kubelet plugin: the uid of the ComputeDomain that has its IMEX channel. On what NVIDIA's
controller makes for a ComputeDomain: the uid of that."""

AUTO_MNNVL = "grove.io/auto-mnnvl"
"""Annotation of the older dialect: enabled or disabled."""
MNNVL_GROUP = "grove.io/mnnvl-group"
"""Annotation of the newer dialect: a group, or `none`; also a label of the group's ComputeDomains."""

PART_OF = "app.kubernetes.io/part-of"
MANAGED_BY = "app.kubernetes.io/managed-by"
COMPONENT = "app.kubernetes.io/component"
OBJECT_NAME = "app.kubernetes.io/name"
REPLICA_INDEX = "grove.io/podcliqueset-replica-index"
SCALING_GROUP = "grove.io/podcliquescalinggroup"
SCALING_GROUP_INDEX = "grove.io/podcliquescalinggroup-replica-index"
PODCLIQUE = "grove.io/podclique"
GROVE_OPERATOR = "grove-operator"
DOMAIN_COMPONENT = "pcs-computedomain"

MAX_TEXT = 253
"""The longest text of a reference that can be of an existing object; the API server does not check references."""

_LABELS = frozenset(
    {
        COMPONENT,
        DOMAIN_LABEL,
        MANAGED_BY,
        MNNVL_GROUP,
        NODE_LABEL,
        PART_OF,
        PODCLIQUE,
        REPLICA_INDEX,
        SCALING_GROUP,
        SCALING_GROUP_INDEX,
        WRITER_LABEL,
    }
)
_ANNOTATIONS = frozenset({AUTO_MNNVL, MNNVL_GROUP, MNNVL_READY, PODS_USING, USED_BY})
SHARED_KEYS = _LABELS | _ANNOTATIONS
"""All decoded metadata has the text of these keys in common."""
MAX_USED_BY = 512
"""Characters of the annotation USED_BY."""
_LONGEST = {MNNVL_READY: 768, USED_BY: MAX_USED_BY}
"""Characters of an annotation that an outline has; it drops a longer one. A valid value of the others has 63."""
_LONGEST_WORD = 64


class Owner(Struct, frozen=True, rename="camel", gc=False):
    """An owner reference of an object, with its flag `controller`."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False

    @property
    def possible(self) -> bool:
        """Return whether an owner with this name can exist: its texts are not too long."""
        return max(map(len, (self.api_version, self.kind, self.name, self.uid))) <= MAX_TEXT


class MnnvlMetadata(Struct, frozen=True, rename="camel"):
    """Metadata of an object with only the labels and annotations that GKM reads: a cluster has thousands of them."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[Owner, ...] | None = None
    oversized: str = ""
    """For an outline: which field is too large to be held."""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "labels", _only(_LABELS, self.labels))
        structs.force_setattr(self, "annotations", mnnvl_annotations(self.annotations))

    def outline(self, why: str) -> Self:
        """Return a reduced copy: the controlling owner, Grove's finalizer, and short annotations.

        A write that depends on the others reads the object again.
        """
        owner = self.controller
        return structs.replace(
            self,
            annotations=_short(self.annotations or {}) or None,
            finalizers=(FINALIZER,) if FINALIZER in (self.finalizers or ()) else None,
            owner_references=(owner,) if owner is not None and owner.possible else None,
            oversized=why,
        )

    def label(self, key: str) -> str:
        """Return the value of a label of the object; "" if absent."""
        return (self.labels or {}).get(key, "")

    def annotation(self, key: str) -> str | None:
        """Return the value of an annotation of the object; None if absent, because an empty value is a user's error."""
        return (self.annotations or {}).get(key)

    @property
    def terminating(self) -> bool:
        """Return whether the object has a deletionTimestamp."""
        return self.deletion_timestamp is not None

    @property
    def controller(self) -> Owner | None:
        """Return the owner reference that has `controller: true`, None if absent."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


def mnnvl_annotations(annotations: dict[str, str] | None) -> dict[str, str] | None:
    """Return those annotations that GKM reads about ComputeDomains; None without any."""
    return _only(_ANNOTATIONS, annotations)


def _short(annotations: dict[str, str]) -> dict[str, str]:
    """Return the short annotations. A long mark still says that pods use the object, as the policies read it."""
    found = {key: text for key, text in annotations.items() if len(text) <= _LONGEST.get(key, _LONGEST_WORD)}
    return found | ({PODS_USING: "unknown"} if PODS_USING in annotations.keys() - found.keys() else {})


def _only(keys: frozenset[str], found: dict[str, str] | None) -> dict[str, str] | None:
    """Return the values of some keys. The keys belong to GKM, so that all objects share their text."""
    return {key: found[key] for key in keys if key in found} or None if found else None
