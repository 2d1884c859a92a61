"""What the agent asks of the API server, counted: the requests are those of the server's audit log."""

from collections import Counter
from collections.abc import Iterable

from support.cluster.audit import Request

AGENT = "system:serviceaccount:gkm-system:gkm-agent"
_FIRST_ERROR = 400


def writes(requests: Iterable[Request]) -> int:
    """Return how many of them write."""
    return sum(request.writes for request in requests)


def told(requests: Iterable[Request]) -> str:
    """Return requests by verb and resource in words, those that were refused apart."""
    counts = Counter(
        f"{request.verb} {request.resource}" + (f" refused with {request.code}" if request.code >= _FIRST_ERROR else "")
        for request in requests
    )
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "nothing"
