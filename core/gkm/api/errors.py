"""The one error that crosses package borders: a reason of the API, a sentence, and what to do next."""

from enum import StrEnum


class Reason(StrEnum):
    """Why something is not so: the reasons of design/api.md, as they stand in objects."""

    # Verified
    COSIGN_SUCCESS = "CosignSuccess"
    NOT_REQUIRED = "NotRequired"
    UPDATE_REFUSED = "UpdateRefused"
    SIGNATURE_MISSING = "SignatureMissing"
    SIGNATURE_INVALID = "SignatureInvalid"
    IDENTITY_MISMATCH = "IdentityMismatch"
    REGISTRY_UNAVAILABLE = "RegistryUnavailable"
    UNAUTHORIZED = "Unauthorized"
    # of a cache on a node
    BACKEND_MISMATCH = "BackendMismatch"
    ARCHITECTURE_MISMATCH = "ArchitectureMismatch"
    WARP_SIZE_MISMATCH = "WarpSizeMismatch"
    DRIVER_TOO_OLD = "DriverTooOld"
    PTX_TOO_NEW = "PTXTooNew"
    METADATA_MISSING = "MetadataMissing"
    METADATA_INVALID = "MetadataInvalid"
    NO_GPU = "NoGPU"
    GPU_LOST = "GPULost"
    DIGEST_MISMATCH = "DigestMismatch"
    CONTENT_MISMATCH = "ContentMismatch"
    TOO_LARGE = "TooLarge"
    UNSAFE_CONTENT = "UnsafeContent"
    DISK_FULL = "DiskFull"
    NODE_ERROR = "NodeError"
    # of a reference that names nothing we may or can use
    INVALID_REFERENCE = "InvalidReference"
    NOT_ALLOWED = "NotAllowed"
    NOT_FOUND = "NotFound"


TRANSIENT = frozenset({Reason.REGISTRY_UNAVAILABLE, Reason.DISK_FULL, Reason.GPU_LOST, Reason.NODE_ERROR})
"""Reasons that pass without anybody changing an object: worth a retry, never a refusal at admission."""


class GKMError(Exception):
    """Something that a person must know: `reason` for machines, `message` for people, `hint` for what to do next.

    A hint that is a `Remedy` reads otherwise at a terminal; `about` is the registry that it is for. `detail` is the
    cause where users must not learn it: it is for logs, and for a person who runs a command; `detail_hint` is the
    hint then.
    """

    def __init__(
        self, reason: Reason, message: str, hint: str = "", about: str = "", *, detail: str = "", detail_hint: str = ""
    ) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.detail = detail
        self.detail_hint = detail_hint
        self.reason = reason
        self.message = message
        self.hint = hint
        self.about = about

    @property
    def transient(self) -> bool:
        """Return whether trying again later can help."""
        return self.reason in TRANSIENT
