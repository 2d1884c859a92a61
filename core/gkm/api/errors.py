"""The error that crosses package borders: a reason of the API, a message for people, and a hint for the next step."""

from enum import StrEnum


class Reason(StrEnum):
    """Machine-readable reasons in conditions, statuses and errors (docs/reference/reasons.md)."""

    # Verified
    COSIGN_SUCCESS = "CosignSuccess"
    NOT_REQUIRED = "NotRequired"
    UPDATE_REFUSED = "UpdateRefused"
    SIGNATURE_MISSING = "SignatureMissing"
    SIGNATURE_INVALID = "SignatureInvalid"
    IDENTITY_MISMATCH = "IdentityMismatch"
    ATTESTATION_MISSING = "AttestationMissing"
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
    # a reference to an object that we may not or cannot use
    INVALID_REFERENCE = "InvalidReference"
    NOT_ALLOWED = "NotAllowed"
    NOT_FOUND = "NotFound"


TRANSIENT = frozenset({Reason.REGISTRY_UNAVAILABLE, Reason.DISK_FULL, Reason.GPU_LOST, Reason.NODE_ERROR})
"""Reasons that can pass without a change of an object: retry them, and never refuse an object for them."""


class Remedy(StrEnum):
    """A next step that depends on the program.

    In a cluster an administrator edits a setting, a CLI user passes an option. The value is the hint for processes in a
    cluster; the command line has its own text (gkm_cli.main.HINTS). The error's `about` names the registry host.
    """

    LOG_IN = "check that the repository exists and that its credentials are configured"
    CHECK_LOGIN = "check the credentials of this registry"
    TRUST_OR_PLAIN_HTTP = "name its certificate authority (caFile), or plainHTTP, in registries.hosts"
    ADD_AUTH_HOST = "if it is right, add it to registries.hosts.<host>.authHosts"
    NAME_HOST = "if it is right, name it in registries.hosts"
    ALLOW_REGISTRY = "ask an administrator to add it to registries.allow"
    RAISE_MAX_IMAGE = "raise store.maxImageBytes if it is meant"
    FREE_SPACE = "free space; it is tried again"


class GKMError(Exception):
    """An error of GKM for a person: `reason` for programs, `message` for people, `hint` for the next step.

    The command line replaces a hint that is a `Remedy` by its own text; `about` is the registry that the hint is for.
    `detail` is a cause that users of the cluster must not see; only logs and the command line show it, with
    `detail_hint` as the hint. `retry_after` is the pause in seconds that an overloaded server requested, 0 without one.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        hint: str = "",
        about: str = "",
        *,
        detail: str = "",
        detail_hint: str = "",
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.retry_after = retry_after
        self.detail = detail
        self.detail_hint = detail_hint
        self.reason = reason
        self.message = message
        self.hint = hint
        self.about = about

    @property
    def transient(self) -> bool:
        """Return whether a later retry of the failed action can succeed."""
        return self.reason in TRANSIENT

    @property
    def inconclusive(self) -> bool:
        """Return whether the error says nothing about the image: it is transient, or the registry denies access."""
        return self.transient or self.reason is Reason.UNAUTHORIZED
