"""Decode AdmissionReview v1 (k8s.io/api/admission/v1) from untrusted bytes, reduced to the fields that GKM uses."""

import base64
import textwrap
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from gkm.api.meta import GROUP
from gkm.hoststate.escaping import escape
from gkm.hoststate.names import CacheRef, InvalidName
from msgspec import Meta, Raw, Struct, structs

API_VERSION = "admission.k8s.io/v1"
CACHE_KINDS = frozenset({"GKMCache", "ClusterGKMCache"})

MAX_WARNING, MAX_WARNING_LINES = 250, 4
"""The API server may cut warnings at 256 characters (KEP-1693): a longer one continues in another line."""

MAX_WARNINGS = 8
"""Limit of warnings: the API server drops warnings beyond 4096 characters in total (k8s.io/apiserver, warning.go)."""

MAX_PROBLEMS = 4
"""Limit of problems in one message."""

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions that decoding can raise."""

R = TypeVar("R", bound="AdmissionReview")

Word = Annotated[str, Meta(max_length=253)]
"""The longest name that Kubernetes allows. Megabytes would stay in memory as long as a registry is slow, and go to the
log."""


class ReviewInvalid(ValueError):
    """The body of a request is not a valid AdmissionReview; the message says where."""


class ReviewBusy(Exception):
    """Too many admission requests are under review; the message says of which kind."""


class GroupVersionKind(Struct, frozen=True):
    """The group, version and kind of the object in an admission request."""

    group: Word
    version: Word
    kind: Word


class ReviewedSpec(Struct, frozen=True, rename="camel"):
    """The fields of a cache's spec that admission reads; the API server's schema checks the others."""

    image: Annotated[str, Meta(max_length=4096)]
    image_pull_secrets: Raw = Raw()
    """Only its first bytes: 8 MiB of [1,1,… would decode to 270 MiB of objects, and a whole Raw keeps the body in
    memory."""

    def __post_init__(self) -> None:
        """Keep only the first bytes."""
        structs.force_setattr(self, "image_pull_secrets", Raw(bytes(memoryview(self.image_pull_secrets)[:5])))

    @property
    def names_secrets(self) -> bool:
        """Return whether the cache names pull secrets, which only the controllers can read."""
        return bytes(self.image_pull_secrets) not in {b"", b"[]", b"null"}


class ReviewedMetadata(Struct, frozen=True, rename="camel"):
    """The field of a cache's metadata that admission reads: all labels would need ten times their length in memory."""

    deletion_timestamp: Word | None = None


class ReviewedObject(Struct, frozen=True):
    """A GKMCache or ClusterGKMCache in an admission request, reduced to the fields that admission reads."""

    spec: ReviewedSpec
    metadata: ReviewedMetadata = ReviewedMetadata()


class AdmissionRequest(Struct, frozen=True, rename="camel"):
    """The fields that every admission request has, except its objects.

    `namespace` is empty for a cluster-wide object.
    """

    uid: Annotated[str, Meta(min_length=1, max_length=128)]
    kind: GroupVersionKind
    operation: Word
    name: Word = ""
    namespace: Word = ""
    sub_resource: Word = ""
    dry_run: bool | None = None


class ReviewRequest(AdmissionRequest, frozen=True):
    """An admission request about a cache."""

    object: ReviewedObject | None = None
    old_object: ReviewedObject | None = None

    @property
    def scope(self) -> str | None:
        """Return the namespace for policies; None for a ClusterGKMCache."""
        return self.namespace or None

    @property
    def image(self) -> str:
        """Return the image reference in the cache's spec; "" if the request has no object."""
        return self.object.spec.image if self.object else ""

    @property
    def cache(self) -> str | None:
        """Return the name of the cache for logs; None if it has no name yet (metadata.generateName)."""
        try:
            return str(CacheRef(self.scope, self.name))
        except InvalidName:
            return None


class AdmissionReview(Struct, rename="camel"):
    """An AdmissionReview without its request: a subclass for each type of request adds it.

    msgspec_warmup cannot prepare a generic type.
    """

    api_version: str
    kind: str


class CacheReview(AdmissionReview):
    """An AdmissionReview with a request about a GKMCache or ClusterGKMCache."""

    request: ReviewRequest


class ReviewResponse(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The response to an admission request: a refusal has a message, an admission may have warnings and a patch."""

    allowed: bool
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: Sequence[Mapping[str, Any]] = ()


ADMITTED = ReviewResponse(allowed=True)


def warned(*warnings: str) -> ReviewResponse:
    """Return an admission with these warnings."""
    return ReviewResponse(allowed=True, warnings=warnings)


def refused(*problems: str) -> ReviewResponse:
    """Return a refusal whose message has the first MAX_PROBLEMS of these problems, and the number of the others."""
    more = len(problems) - MAX_PROBLEMS
    message = "; ".join(problems[:MAX_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
    return ReviewResponse(allowed=False, message=message)


def result(response: ReviewResponse, *, late: bool) -> str:
    """Return the value of the label `result` of `gkm_admission_seconds`; `late`: the check did not finish in time."""
    if not response.allowed:
        return "refused"
    return "late" if late else "warned" if response.warnings else "admitted"


def parse(body: bytes | bytearray) -> ReviewRequest:
    """Return the request about a cache in an AdmissionReview.

    Raises:
        ReviewInvalid: the body is not an AdmissionReview for our kinds.
    """
    request = open_review(body, CacheReview).request
    if request.kind.group != GROUP or request.kind.kind not in CACHE_KINDS:
        raise ReviewInvalid("this webhook reviews GKMCache and ClusterGKMCache only")
    return request


def open_review(body: bytes | bytearray, review: type[R]) -> R:
    """Decode a request's body as an AdmissionReview of the given type.

    Raises:
        ReviewInvalid: the body is not an AdmissionReview of this type.
    """
    try:
        found = msgspec.json.decode(body, type=review)
    except UNDECODABLE as error:
        raise ReviewInvalid(f"not an AdmissionReview: {str(error)[:200]}") from error
    if (found.api_version, found.kind) != (API_VERSION, "AdmissionReview"):
        raise ReviewInvalid(f"not an AdmissionReview of {API_VERSION}")
    return found


def encode(uid: str, response: ReviewResponse) -> bytes:
    """Return the AdmissionReview with the response to the request with this uid."""
    answer: dict[str, object] = {"uid": uid, "allowed": response.allowed}
    if not response.allowed:
        answer["status"] = {"code": 403, "reason": "Forbidden", "message": escape(response.message)}
    elif response.patch:
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(response.patch)).decode()}
    if response.warnings:
        answer["warnings"] = [line for text in response.warnings[:MAX_WARNINGS] for line in _lines(text)]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": answer})


def _lines(warning: str) -> list[str]:
    text = escape(" ".join(warning.split()))
    return textwrap.wrap(text, MAX_WARNING, max_lines=MAX_WARNING_LINES, placeholder="…", break_on_hyphens=False)
