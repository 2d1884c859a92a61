"""Count the agent's requests to the API server, from the server's audit log."""

from collections import Counter
from collections.abc import Iterable

from support.cluster.audit import Request

AGENT = "system:serviceaccount:gkm-system:gkm-agent"
_FIRST_ERROR = 400


def writes(requests: Iterable[Request]) -> int:
    """Return the number of writes."""
    return sum(request.writes for request in requests)


def as_text(requests: Iterable[Request]) -> str:
    """Return the requests by verb and resource as text, refused ones separately."""
    counts = Counter(
        f"{request.verb} {request.resource}" + (f" refused with {request.code}" if request.code >= _FIRST_ERROR else "")
        for request in requests
    )
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "nothing"
