"""What the agent asks of the API server, by the server's own audit log.

Why not something else: the server's apiserver_request_total does not say who asked (we and the garbage collector touch
the same objects), nor counts a watch before it ends; the agent's own counter is what is to be checked. The audit log
has every request that the agent's token made, refused ones and open watches included, from the moment it arrived.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AGENT = "system:serviceaccount:gkm-system:gkm-agent"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
"""Server-side apply is a patch here."""
_FIRST_ERROR = 400


@dataclass(frozen=True)
class Request:
    """One request: `what` is the resource, with its subresource."""

    verb: str
    what: str
    code: int = 0
    """0 while it is not answered."""

    @property
    def writes(self) -> bool:
        return self.verb in WRITES


@dataclass(frozen=True)
class Audit:
    """The audit log of an API server that was started with `arguments`; only the agent is in it."""

    directory: Path

    def arguments(self) -> tuple[str, ...]:
        """Write the policy; return what the server has to be started with."""
        self.directory.mkdir(parents=True)
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "rules": [{"level": "Metadata", "users": [AGENT]}, {"level": "None"}],
        }
        path = self.directory / "policy.json"
        path.write_text(json.dumps(policy))
        # The log's mode is "blocking": a request is answered when its lines are written.
        return f"--audit-policy-file={path}", f"--audit-log-path={self._log}", "--audit-log-maxsize=1000"

    def requests(self) -> list[Request]:
        """Return every request so far, in the order in which they came."""
        found: dict[str, Request] = {}
        text = self._log.read_text()
        for line in text[: text.rfind("\n") + 1].splitlines():
            event = json.loads(line)
            found[event["auditID"]] = Request(
                event["verb"], _what(event), event.get("responseStatus", {}).get("code", 0)
            )
        return list(found.values())

    @property
    def _log(self) -> Path:
        return self.directory / "audit.log"


def writes(requests: Iterable[Request]) -> int:
    """Return how many of them write."""
    return sum(request.writes for request in requests)


def told(requests: Iterable[Request]) -> str:
    """Return requests by verb and resource in words, those that were refused apart."""
    counts = Counter(
        f"{request.verb} {request.what}" + (f" refused with {request.code}" if request.code >= _FIRST_ERROR else "")
        for request in requests
    )
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common()) or "nothing"


def _what(event: dict[str, Any]) -> str:
    about = event.get("objectRef", {})
    return "/".join(filter(None, [about.get("resource", event["requestURI"]), about.get("subresource")]))
