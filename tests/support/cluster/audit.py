"""What processes of ours ask of the API server, by the server's own audit log.

Why not something else: the server's apiserver_request_total does not say who asked (we and the garbage collector touch
the same objects), nor counts a watch before it ends; a process's own counter is what is to be checked. The audit log
has every request that a token of ours made, refused ones and open watches included, from the moment it arrived.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.cluster.control_plane import ControlPlane
from support.host.processes import Process

OURS = "system:serviceaccounts:gkm-system"
"""The group that every ServiceAccount of GKM's namespace is in, by Kubernetes itself."""
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
"""Server-side apply is a patch here."""


@dataclass(frozen=True)
class Request:
    """One request as the authorizer saw it; an apply that made its object is a patch answered with 201."""

    user: str
    verb: str
    resource: str
    """With its subresource, as RBAC writes it: `pods/log`; the path where it is about no resource."""
    group: str = ""
    namespace: str = ""
    name: str = ""
    code: int = 0
    """0 while it is not answered."""

    @property
    def writes(self) -> bool:
        return self.verb in WRITES


@dataclass(frozen=True)
class Audit:
    """The audit log of an API server that was started with `arguments`; only `groups` of users are in it."""

    directory: Path
    groups: Sequence[str] = (OURS,)

    def arguments(self) -> tuple[str, ...]:
        """Write the policy; return what the server has to be started with."""
        self.directory.mkdir(parents=True, exist_ok=True)
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "rules": [{"level": "Metadata", "userGroups": list(self.groups)}, {"level": "None"}],
        }
        path = self.directory / "policy.json"
        path.write_text(json.dumps(policy))
        # The log's mode is "blocking": a request is answered when its lines are written.
        return f"--audit-policy-file={path}", f"--audit-log-path={self._log}", "--audit-log-maxsize=1000"

    def requests(self) -> list[Request]:
        """Return every request so far, in the order in which they came."""
        found: dict[str, Request] = {}
        # Nobody of ours may have asked yet.
        text = self._log.read_text() if self._log.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            event = json.loads(line)
            found[event["auditID"]] = _request(event)
        return list(found.values())

    @property
    def _log(self) -> Path:
        return self.directory / "audit.log"


@dataclass
class AuditedControlPlane(ControlPlane):
    """A control plane whose API server keeps an audit log of `audited` groups."""

    audited: Sequence[str] = field(default=(OURS,))

    @property
    def audit(self) -> Audit:
        return Audit(self.directory / "audit", self.audited)

    def _run(self, name: str, command: str, *arguments: str) -> Process:
        more = self.audit.arguments() if command == "kube-apiserver" else ()
        return super()._run(name, command, *arguments, *more)


def _request(event: dict[str, Any]) -> Request:
    about = event.get("objectRef", {})
    return Request(
        user=event["user"]["username"],
        verb=event["verb"],
        resource="/".join(filter(None, [about.get("resource", event["requestURI"]), about.get("subresource")])),
        group=about.get("apiGroup", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
    )
