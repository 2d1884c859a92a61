"""Admission requests about workloads: decodes hostile bytes into the few fields that the decisions read.

An object that cannot be read is refused as an object, with the place of the fault. `decode` must never be given more
bytes than a `ByteBudget` allows: a list of objects takes up to 20 times the bytes of its text.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
from gkm.api.grove import CliqueSpec, PodClique, PodCliqueSet
from gkm.api.mnnvl_metadata import MnnvlMetadata
from gkm.api.pod_specs import PodSpec
from msgspec import Raw, Struct, field, structs

from gkm_operator.admission.review import UNDECODABLE, AdmissionRequest, AdmissionReview, ReviewInvalid, open_review

T = TypeVar("T")
_NULL = Raw(b"null")


class ObjectInvalid(ValueError):
    """The object in an admission request cannot be decoded; the message names the faulty field."""


class LabeledMetadata(Struct, frozen=True, gc=False):
    """The labels of an object; None if it has no labels."""

    labels: dict[str, str] | None = None


class PatchedMetadata(MnnvlMetadata, frozen=True):
    """Metadata with facts for a patch: whether the object has any labels or annotations, decoded or not."""

    has_labels: bool = False
    has_annotations: bool = False

    def __post_init__(self) -> None:
        structs.force_setattr(self, "has_labels", self.labels is not None)
        structs.force_setattr(self, "has_annotations", self.annotations is not None)
        MnnvlMetadata.__post_init__(self)


class LabelSelector(Struct, frozen=True, rename="camel"):
    """A label selector of a pod affinity term, reduced to matchLabels."""

    match_labels: dict[str, str] | None = None


class AffinityTerm(Struct, frozen=True, rename="camel"):
    """A term of a pod affinity: which pods, and the node label that the nodes must share."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None


class WeightedTerm(Struct, frozen=True, rename="camel"):
    """A preferred term of a pod affinity, without its weight."""

    pod_affinity_term: AffinityTerm = AffinityTerm()


class PodAffinity(Struct, frozen=True):
    """The required and preferred terms of a pod's podAffinity; None where the pod has no such list."""

    required: tuple[AffinityTerm, ...] | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedTerm, ...] | None = field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class WorkloadAffinity(Struct, frozen=True, rename="camel"):
    """A pod's spec.affinity, reduced to podAffinity."""

    pod_affinity: PodAffinity | None = None


class ReviewedPodSpec(PodSpec, frozen=True):
    """A pod specification in an admission request, with its affinity."""

    affinity: WorkloadAffinity | None = None


class ReviewedCliqueSpec(CliqueSpec, frozen=True):
    """The specification of a PodClique, reduced to the fields that reviews read."""

    pod_spec: ReviewedPodSpec = ReviewedPodSpec()


class ReviewedSet(PodCliqueSet, frozen=True):
    """A PodCliqueSet in an admission request, with metadata for a patch."""

    metadata: PatchedMetadata


class ReviewedClique(PodClique, frozen=True):
    """A PodClique in an admission request, reduced to the fields that its review reads."""

    metadata: PatchedMetadata
    spec: ReviewedCliqueSpec = ReviewedCliqueSpec()


class ReviewedScalingGroup(Struct, frozen=True):
    """A PodCliqueScalingGroup in an admission request, reduced to its metadata."""

    metadata: PatchedMetadata


class ReviewedPod(Struct, frozen=True):
    """A pod in an admission request, reduced to the fields that the review of ComputeDomains reads."""

    metadata: PatchedMetadata
    spec: ReviewedPodSpec = ReviewedPodSpec()


class UserInfo(Struct, frozen=True):
    """The user who sent a request (authentication.k8s.io/v1)."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)


_NO_USER = UserInfo()


class Envelope(AdmissionRequest, frozen=True):
    """An admission request whose objects are not decoded yet: they refer to the body, which stays in memory."""

    object: Raw = _NULL
    old_object: Raw = _NULL
    user_info: Raw = _NULL

    @property
    def head(self) -> AdmissionRequest:
        """Return the request without its objects, so that the body can be freed."""
        return AdmissionRequest(**{name: getattr(self, name) for name in AdmissionRequest.__struct_fields__})


class EnvelopeReview(AdmissionReview):
    """An AdmissionReview whose request has undecoded objects."""

    request: Envelope


@dataclass(frozen=True, slots=True)
class DomainRequest(Generic[T]):
    """A request with decoded objects; `old` is None for a creation; for a deletion `object` is the deleted object."""

    operation: str
    namespace: str
    object: T
    old: T | None = None
    user: UserInfo = _NO_USER


def open_envelope(body: bytes | bytearray, group: str, kind: str) -> Envelope:
    """Decode the AdmissionReview in a body, except its objects.

    Raises:
        ReviewInvalid: the body is not an AdmissionReview for this kind.
    """
    request = open_review(body, EnvelopeReview).request
    if (request.kind.group, request.kind.kind) != (group, kind):
        raise ReviewInvalid(f"this path reviews {kind} only")
    return request


def decode(envelope: Envelope, kind: type[T]) -> DomainRequest[T]:
    """Decode the objects, old and new, of an admission request as `kind`.

    Raises:
        ObjectInvalid: an object is missing or cannot be read.
    """
    found, old = _decode(envelope.object, kind), _decode(envelope.old_object, kind)
    if envelope.operation == "DELETE":
        found, old = old, None
    if found is None:
        raise ObjectInvalid(f"{envelope.operation} without an object")
    user = _decode(envelope.user_info, UserInfo) or _NO_USER
    return DomainRequest(envelope.operation, envelope.namespace, found, old, user)


def _decode(raw: Raw, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(raw, type=kind | None)
    except UNDECODABLE as error:
        raise ObjectInvalid(str(error)[:200]) from error
