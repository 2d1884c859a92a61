"""The delay before a retry: the registry's Retry-After header, within bounds."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_DELAY_SECONDS = 5.0
"""No worker waits longer than this; the caller retries later."""
_STEP_SECONDS = 0.2


def retry_delay(attempt: int, retry_after: str = "") -> float:
    """Return the seconds to wait before the attempt with this number, which is at least 2."""
    requested = _seconds(retry_after, datetime.now(UTC))
    return min(max(requested, _STEP_SECONDS * (attempt - 1)), MAX_DELAY_SECONDS)


def _seconds(retry_after: str, now: datetime) -> float:
    """Return the seconds in a Retry-After header, a number or a date (RFC 9110, section 10.2.3); 0 for neither."""
    text = retry_after.strip()[:64]
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        then = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds()
