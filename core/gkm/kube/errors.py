"""The error for a failed request to the API server: it refused the request or did not answer."""

from collections.abc import Iterable

from msgspec import DecodeError, Struct, json

NO_RESPONSE = 0
"""The status of an error without a response: connection refused, timeout, broken TLS."""

UNAUTHORIZED = 401

UNREADABLE = "Unreadable"
"""The reason that GKM gives to a response that cannot be decoded."""

MAX_RETRY_AFTER_SECONDS = 60.0
"""Limit of the pause in seconds that a server can request; a proxy might request hours."""

UNDECODABLE = (DecodeError, UnicodeDecodeError, RecursionError)
"""msgspec's errors for bytes that are no JSON of a type; JSON that is nested too deeply raises RecursionError."""

_FORBIDDEN, _NOT_FOUND, _CONFLICT, _GONE, _INVALID = 403, 404, 409, 410, 422
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_OF_WEBHOOKS = ("failed calling webhook", "denied the request")
"""Parts of the API server's messages about webhooks."""
_MAX_MESSAGE = 1000


class _Cause(Struct):
    reason: str = ""


class _Details(Struct, rename="camel"):
    retry_after_seconds: float = 0
    causes: tuple[_Cause, ...] | None = None


class _Status(Struct):
    """The fields of metav1.Status that GKM reads."""

    reason: str = ""
    message: str = ""
    code: int = 0
    details: _Details | None = None


class ApiError(Exception):
    """A request to the API server that failed.

    `status` is the HTTP status (0: no response), `reason` the machine-readable reason (`NotFound`, `Conflict`,
    `Expired` …), `message` a line for people, `retry_after` the requested pause in seconds (0: no request), `causes`
    the reasons of an `Invalid` object, one for each field (metav1.StatusCause).
    """

    def __init__(
        self, status: int, reason: str, message: str, retry_after: float = 0, causes: Iterable[str] = ()
    ) -> None:
        super().__init__(f"{reason or status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.causes = frozenset(causes)

    @property
    def not_found(self) -> bool:
        """Return whether the object or its kind does not exist (404)."""
        return self.status == _NOT_FOUND

    @property
    def forbidden(self) -> bool:
        """Return whether a right is missing, or a quota or a policy refuses the object (403)."""
        return self.status == _FORBIDDEN

    @property
    def refused(self) -> bool:
        """Return whether a quota, a policy, a missing right or a rule of its kind refuses the object (403, 422)."""
        return self.forbidden or self.status == _INVALID

    @property
    def conflict(self) -> bool:
        """Return whether the object exists already or has changed since it was read (409)."""
        return self.status == _CONFLICT

    @property
    def expired(self) -> bool:
        """Return whether the resourceVersion or continue token is too old, so that a new list is needed (410)."""
        return self.status == _GONE

    @property
    def unavailable(self) -> bool:
        """Return whether the API server is away or overloaded, so that the next request would fail, too.

        A webhook causes other statuses, also 503 and 504.
        """
        return self.status in {NO_RESPONSE, _TOO_MANY_REQUESTS}

    @property
    def definite(self) -> bool:
        """Return whether the API server did not store the object, and never will for this request.

        It asks webhooks before it stores. One that fails or denies the request may cause any status.
        """
        of_webhook = any(part in self.message for part in _OF_WEBHOOKS)
        return self.status != NO_RESPONSE and (self.status < _SERVER_ERROR or of_webhook)

    @property
    def unreadable(self) -> bool:
        """Return whether the response could not be decoded (gkm.kube.decoding)."""
        return self.reason == UNREADABLE


def from_body(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error for a failed response: from its metav1.Status, else from the first line of the body.

    `retry_after` is the header. Kubernetes sends whole seconds (RFC 9110, 10.2.3); a date, which a proxy may send, is
    ignored, because the time of day can jump. The result is at most MAX_RETRY_AFTER_SECONDS, also for an error in a
    watch.
    """
    seconds = _bounded(float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0)
    try:
        decoded = json.decode(body, type=_Status)
    except UNDECODABLE:
        line = body[:_MAX_MESSAGE].decode(errors="replace").strip().partition("\n")[0]
        return ApiError(status, "", line or f"HTTP {status}", seconds)
    details = decoded.details or _Details()
    return ApiError(
        decoded.code or status,
        decoded.reason,
        decoded.message[:_MAX_MESSAGE] or f"HTTP {status}",
        max(seconds, _bounded(details.retry_after_seconds)),
        (cause.reason for cause in details.causes or ()),
    )


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)
