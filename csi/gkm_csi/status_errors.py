"""The error that ends a call: a gRPC code of the CSI specification and a message that a person can act on.

The message appears in the events of a pod: it names the objects and the next step, and no data of other namespaces.
"""

from enum import Enum


class Code(Enum):
    """The gRPC status codes that this driver returns, with gRPC's names."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"


_NON_FINAL = frozenset({Code.ABORTED, Code.UNAVAILABLE})
"""The codes after which kubelet repeats the call for the volume (csi_client.go, isFinalError).

After every other code kubelet may forget the volume without unpublishing it.
"""


class StatusError(Exception):
    """An error that ends a gRPC call with a status code and a message for people."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def is_final(error: Exception) -> bool:
    """Return whether kubelet may forget the volume after this error instead of repeating the call."""
    return not (isinstance(error, StatusError) and error.code in _NON_FINAL)


def invalid_argument(message: str) -> StatusError:
    """Return the error INVALID_ARGUMENT, for a request that is invalid in any state of the node."""
    return StatusError(Code.INVALID_ARGUMENT, message)


def failed_precondition(message: str) -> StatusError:
    """Return FAILED_PRECONDITION, for a request that fails until a person changes the node, the cache or the pod."""
    return StatusError(Code.FAILED_PRECONDITION, message)
