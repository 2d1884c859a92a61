"""The conditions Ready, Error and NoCacheForHardware of a cache, computed from the totals over its nodes. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from gkm.api.grammar import agree, count_of
from gkm.api.meta import FALSE, TRUE

from gkm_operator.caches.nodes.totals import CacheSummary

FAILING = frozenset({"NodesFailed", "NodesIncompatible"})
"""Reasons of Ready that need a person's action."""
NO_CACHE = "NoCacheForHardware"
_MAX_LABELS, _MAX_TEXT = 3, 320


class ConditionValue(NamedTuple):
    """A condition without its times."""

    kind: str
    status: str
    reason: str
    message: str


def ready(summary: CacheSummary, *, verified: bool, selector: Mapping[str, str] | None = None) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Ready; `selector` is the nodeSelector of the cache.

    A node whose GPUs the cache does not fit does not count, unless there is no other: then no pod can use the cache.
    """
    if not verified:
        return FALSE, "NotVerified", "the image is not verified: see the condition Verified"
    if not summary.total:
        return FALSE, "NoMatchingNodes", f"no node reports this cache: {_expected_nodes(selector or {})}"
    if not summary.fitting:
        return FALSE, "NodesIncompatible", _fits_no_node(summary)
    counts = f"{summary.ready} of {count_of(summary.fitting, 'node')} {agree(summary.fitting, 'is', 'are')} ready"
    unfit = f", {summary.incompatible} incompatible{_reasons(summary.misfits)}" if summary.incompatible else ""
    if summary.ready == summary.fitting:
        return TRUE, "AllNodesReady", f"{counts}{unfit}"
    message = f"{counts}, {summary.failed} failed{_reasons(summary.failures)}{unfit}{_silent(summary)}"
    if summary.failed:
        return FALSE, "NodesFailed", message
    return FALSE, "NodesPending", message


def error(summary: CacheSummary) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Error. Silent and incompatible nodes are not an error."""
    if not summary.failed:
        return FALSE, "NoFailures", "no node reports a failure"
    message = f"{count_of(summary.failed, 'node')} failed{_reasons(summary.failures)}: see failedNodeConditions"
    return TRUE, "NodeFailuresPresent", message


def no_cache_for_hardware(summary: CacheSummary) -> tuple[str, str, str]:
    """Return status, reason and message of the condition NoCacheForHardware."""
    if not summary.unserved:
        return FALSE, "NoPodsAffected", "no pod is on a node whose GPUs the cache does not fit"
    more = summary.unserved - len(summary.unserved_named)
    named = f"{', '.join(summary.unserved_named)}{f' and {more} more' if more else ''}"
    message = (
        f"pods on {count_of(summary.unserved, 'node')} wait for this cache or started without it, because it fits no "
        f"GPU there: {named}; see incompatibleNodeConditions and failedNodeConditions"
    )
    return TRUE, "PodsAffected", message


def _expected_nodes(selector: Mapping[str, str]) -> str:
    """Return a description of the nodes that would report a cache, for comparison with the nodes of the cluster."""
    if not selector:
        return "every node with a GPU and a running agent would"
    shown = [ascii(f"{key}={value}"[:_MAX_TEXT])[1:-1] for key, value in sorted(selector.items())[:_MAX_LABELS]]
    more = len(selector) - len(shown)
    labels = f"{', '.join(shown)}{f' and {more} more' if more else ''}"
    return f"every node with a running agent and the labels of nodeSelector ({labels}) would"


def _fits_no_node(summary: CacheSummary) -> str:
    nodes = f"{agree(summary.total, 'node', 'nodes')} that {agree(summary.total, 'reports', 'report')} it"
    return (
        f"the cache fits no GPU of the {summary.total} {nodes}{_reasons(summary.misfits)}: "
        "see incompatibleNodeConditions"
    )


def _reasons(nodes: Mapping[str, list[str]]) -> str:
    return f" ({', '.join(nodes)})" if nodes else ""


def _silent(summary: CacheSummary) -> str:
    if not summary.silent:
        return ""
    named = ", ".join(f"{name} ({reason})" for name, reason in summary.silences.items())
    more = summary.silent - len(summary.silences)
    return f", {summary.silent} silent: {named}{f' and {more} more' if more > 0 else ''}"
