"""The one error that ends a call: a code of the CSI specification and a sentence that a person can act on.

The sentence ends in the events of a pod, so it names what is meant and what to do, and never what others must not see.
"""

from enum import Enum


class Code(Enum):
    """The gRPC codes that this driver answers with, by the names of gRPC."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"


_NON_FINAL = frozenset({Code.ABORTED, Code.UNAVAILABLE})
"""Of our codes, those after which kubelet comes back for the same volume (csi_client.go, isFinalError).

After every other one kubelet may forget the volume without ever unpublishing it.
"""


class StatusError(Exception):
    """A call that is not done, for a reason that is known."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def is_final(error: Exception) -> bool:
    """Return whether kubelet may forget the volume after this error; what is unexpected is answered INTERNAL."""
    return not (isinstance(error, StatusError) and error.code in _NON_FINAL)


def invalid_argument(message: str) -> StatusError:
    """Return the refusal of a request that would be wrong at any time."""
    return StatusError(Code.INVALID_ARGUMENT, message)
