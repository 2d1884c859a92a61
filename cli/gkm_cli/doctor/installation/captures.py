"""Captures: where images of what pods compiled go, and which nodes refuse or cannot send them. Pure."""

from collections import defaultdict
from collections.abc import Iterator

from gkm.api.config import Config

from gkm_cli.doctor.findings import Finding, Severity, some
from gkm_cli.doctor.installation import subjects
from gkm_cli.doctor.installation.observation import check
from gkm_cli.doctor.installation.observed import InstallationFacts

_SET = "set capture.registry and capture.signing.keyFile or keyless (docs/features/capture.md), or capture.mode: off"


@check("captures/destination", "captures have a destination", "config_map", subjects.CONFIGURATION)
def destination(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield where the files go that pods add to private volumes; an incomplete destination is a problem."""
    config = observed.config
    if not isinstance(config, Config):
        return
    capture = config.capture
    has_signer = bool(capture.signing.key_file or capture.signing.keyless)
    if capture.mode == "off":
        yield _line("capture.mode is off: GKM captures no volume, and no capture leaves a node")
    elif capture.is_pushed:
        which = "all private volumes" if capture.mode == "auto" else 'volumes with capture: "true"'
        yield _line(f"capture.mode is {capture.mode}: signed images of {which} go to {capture.registry}")
    elif capture.registry or has_signer:
        missing = "capture.signing" if capture.registry else "capture.registry"
        why = "without both, no image of what pods compile is made"
        yield Finding(Severity.PROBLEM, "", f"{missing} is not set: no capture leaves a node", why, _SET)
    else:
        yield _line(f"no capture leaves a node: capture.mode is {capture.mode} without registry and signer; {_SET}")


@check("captures/refused", "no node refuses a capture", "reports", subjects.CAPTURES, cluster_wide=False)
def refused(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the captures that nodes refused or cannot send, by reason."""
    nodes: dict[tuple[str, str], tuple[list[str], str]] = defaultdict(lambda: ([], ""))
    for report in observed.reports:
        for capture in report.status.captures:
            if capture.state in ("Refused", "Waiting") and capture.reason:
                key = (capture.state, capture.reason)
                nodes[key] = ([*nodes[key][0], report.spec.node_name], nodes[key][1] or capture.message)
    for (state, reason), (names, message) in sorted(nodes.items()):
        severity, why = Severity.WARNING, "no file left the node: the files are no acceptable cache, or were not copied"
        if state == "Waiting":
            severity, why = Severity.PROBLEM, "the agent tries again, and capture.retention ends that"
        detail = f"captures are {state} on {some(set(names))}: {reason}: {message}"
        hint = "docs/reference/reasons.md explains this reason; status.captures of the GKMCacheNodes has the pods"
        yield Finding(severity, "", detail, why, hint)


def _line(text: str) -> Finding:
    return Finding(Severity.OK, "", text)
