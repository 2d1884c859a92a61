"""Responses within bounds: the size and time of a body, whatever the headers claim, and the delay before a retry."""

import time
from collections.abc import Iterator
from io import BytesIO

from urllib3 import BaseHTTPResponse, Retry
from urllib3.exceptions import HTTPError, InvalidHeader

from gkm.api.errors import GKMError, Reason
from gkm.hoststate.pacing import Backoff

CHUNK_BYTES = 256 << 10
MAX_DELAY_SECONDS = 5.0
"""The longest pause, before its spread, that a worker waits for; a registry that requests more is retried later."""
MAX_RETRY_AFTER_SECONDS = 1200.0
"""A registry that requests more, by mistake or in bad faith, is retried after this time and its spread."""
FIRST_DELAY_SECONDS = 0.4
"""The pause before the first retry, before its spread; each further one is twice as long."""


def read_chunks(response: BaseHTTPResponse, limit: int, deadline: float) -> Iterator[bytes]:
    """Yield at most `limit` bytes of the body before `deadline` (time.monotonic()).

    Raises:
        GKMError: REGISTRY_UNAVAILABLE for a body that breaks off or is too slow; TOO_LARGE for a longer one;
            UNSAFE_CONTENT for a Content-Encoding.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        # We requested identity; an inflating body would hide its size (48 kB became 50 MB in a test).
        raise GKMError(Reason.UNSAFE_CONTENT, "the registry answers with a Content-Encoding that was not asked for")
    received = 0
    try:
        # read1, because read fills its buffer and so could wait past every deadline on a drip.
        more = True
        while more:
            chunk = response.read1(min(CHUNK_BYTES, limit + 1 - received))
            # The timer shuts the connection down at the deadline, which looks like the end of a body without a stated
            # length.
            if time.monotonic() >= deadline:
                raise GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry sends too slowly")
            received += len(chunk)
            if received > limit:
                raise GKMError(Reason.TOO_LARGE, f"the registry sends more than the {limit} bytes that are allowed")
            if more := bool(chunk):
                yield chunk
    except (HTTPError, OSError) as error:
        if time.monotonic() >= deadline:
            raise GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry sends too slowly") from error
        raise GKMError(Reason.REGISTRY_UNAVAILABLE, "the registry broke off in the middle of an answer") from error


def read_body(response: BaseHTTPResponse, limit: int, deadline: float) -> bytes:
    """Return the whole body, as `read_chunks` does; joining a list of chunks would hold it twice."""
    body = BytesIO()
    for chunk in read_chunks(response, limit, deadline):
        body.write(chunk)
    return body.getvalue()


def requested_pause(retry_after: str) -> float:
    """Return the seconds until a retry that the header Retry-After requests, at most MAX_RETRY_AFTER_SECONDS.

    The header is a number or a date (RFC 9110, section 10.2.3); anything else counts as 0.
    """
    try:
        requested = Retry().parse_retry_after(retry_after[:64])
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0
    return min(max(requested, 0.0), MAX_RETRY_AFTER_SECONDS)


def retry_delay(attempt: int, requested: float = 0.0, first: float = FIRST_DELAY_SECONDS) -> float:
    """Return the seconds to wait before the attempt with this number, which is at least 2; `first` is that of 2.

    Every client of a registry gets the same answer, so each waits for another time.
    """
    return Backoff(first, MAX_DELAY_SECONDS).pause(attempt - 1, min(requested, MAX_DELAY_SECONDS))
