"""The reasons in the conditions of pools and task groups (docs/reference/reasons.md)."""

from enum import StrEnum


class GroupReason(StrEnum):
    """Reasons of Parsed (pools), ObjectsCreated, ObjectsDeleted and NVLinkVerified (task groups)."""

    # Parsed of a pool, and ObjectsCreated of a group that cannot be planned
    PARSED = "Parsed"
    POOL_MISSING = "PoolMissing"
    TEMPLATE_MISSING = "TemplateMissing"
    TEMPLATE_INVALID = "TemplateInvalid"
    RENDERING_FAILED = "RenderingFailed"
    RULE_NOT_MET = "RuleNotMet"
    TOO_LARGE = "TooLarge"
    # ObjectsCreated
    CREATED = "Created"
    KIND_NOT_ALLOWED = "KindNotAllowed"
    NAME_TAKEN = "NameTaken"
    REFUSED = "Refused"
    ENDED = "Ended"
    # ObjectsCreated, ObjectsDeleted and NVLinkVerified
    RETRYING = "Retrying"
    # ObjectsDeleted
    DELETED = "Deleted"
    DELETING = "Deleting"
    FINALIZERS_PENDING = "FinalizersPending"
    RIGHTS_MISSING = "RightsMissing"
    # NVLinkVerified
    TEST_RUNNING = "TestRunning"
    TEST_FAILED = "TestFailed"
    NO_RESULT = "NoResult"
    BANDWIDTH_REACHED = "BandwidthReached"
    BANDWIDTH_TOO_LOW = "BandwidthTooLow"
