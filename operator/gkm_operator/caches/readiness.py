"""The conditions Ready and Error of a cache, from the sums over its nodes. Pure."""

from gkm_operator.caches.outcome import FALSE, TRUE
from gkm_operator.caches.tally import Summary


def ready(summary: Summary, *, verified: bool) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Ready."""
    if not verified:
        return FALSE, "NotVerified", "the image is not verified: see the condition Verified"
    if not summary.total:
        return FALSE, "NoMatchingNodes", "no node reports this cache"
    counts = f"{summary.ready} of {summary.total} nodes are ready"
    if summary.ready == summary.total:
        return TRUE, "AllNodesReady", counts
    return FALSE, "NodesPending", f"{counts}, {summary.failed} failed{_silent(summary)}"


def error(summary: Summary) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Error. That nodes are silent is none."""
    if not summary.failed:
        return FALSE, "NodeFailuresPresent", "no node reports a failure"
    reasons = ", ".join(summary.failures)
    return TRUE, "NodeFailuresPresent", f"{summary.failed} nodes failed ({reasons}): see failedNodeConditions"


def _silent(summary: Summary) -> str:
    if not summary.silent:
        return ""
    named = ", ".join(f"{name} ({why})" for name, why in summary.silences.items())
    more = summary.silent - len(summary.silences)
    return f", {summary.silent} silent: {named}{f' and {more} more' if more > 0 else ''}"
