"""What the API server refused, or that it did not answer: one error for both, with the server's own words."""

from msgspec import DecodeError, Struct, json

NO_RESPONSE = 0
"""The status of an error that no server sent: connection refused, time-out, broken TLS."""

UNREADABLE = "Unreadable"
"""Our own machine word, for an answer that came and that nobody can read."""

MAX_RETRY_AFTER_SECONDS = 60.0
"""An API server asks for seconds; a proxy before it that asks for hours must not keep us away once it answers again."""

UNDECODABLE = (DecodeError, UnicodeDecodeError, RecursionError)
"""msgspec's errors for bytes that are no JSON of a type; RecursionError is that of JSON which is nested too deeply."""

_NOT_FOUND, _CONFLICT, _GONE = 404, 409, 410
_MAX_MESSAGE = 1000


class _Details(Struct, rename="camel"):
    retry_after_seconds: float = 0


class _Status(Struct):
    """metav1.Status, as far as it is read."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


class ApiError(Exception):
    """A request that did not succeed.

    `status` is the HTTP status (0: no answer), `reason` the server's machine word (`NotFound`, `Conflict`, `Expired`
    …), `message` a line for people, `retry_after` the seconds that the server asked us to wait (0: it did not).
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0) -> None:
        super().__init__(f"{reason or status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def not_found(self) -> bool:
        """Return whether the object (or its kind) is not there."""
        return self.status == _NOT_FOUND

    @property
    def conflict(self) -> bool:
        """Return whether somebody else was first: the object exists already, or changed meanwhile."""
        return self.status == _CONFLICT

    @property
    def expired(self) -> bool:
        """Return whether the resourceVersion or continue token is too old: only a new list helps (HTTP 410)."""
        return self.status == _GONE

    @property
    def unreadable(self) -> bool:
        """Return whether an answer came that is not what the API promises (gkm.kube.decoding)."""
        return self.reason == UNREADABLE


def from_body(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error in an answer: its metav1.Status where it is one, else its first line.

    `retry_after` is the header. Kubernetes sends whole seconds (RFC 9110, 10.2.3); a date, which a proxy may send,
    would be read against a clock that can jump, so our own pauses stand in for it. Never more than
    MAX_RETRY_AFTER_SECONDS comes out, also of an error in the midst of a watch.
    """
    seconds = _bounded(float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0)
    try:
        decoded = json.decode(body, type=_Status)
    except UNDECODABLE:
        line = body[:_MAX_MESSAGE].decode(errors="replace").strip().partition("\n")[0]
        return ApiError(status, "", line or f"HTTP {status}", seconds)
    asked = _bounded(decoded.details.retry_after_seconds if decoded.details else 0.0)
    return ApiError(
        decoded.code or status, decoded.reason, decoded.message[:_MAX_MESSAGE] or f"HTTP {status}", max(seconds, asked)
    )


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)
