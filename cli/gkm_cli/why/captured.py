"""Decide the link of what a pod compiled: whether the agent of its node refused it, or cannot send it. Pure.

Next steps are the words of docs/reference/reasons.md, "Captures".
"""

from collections.abc import Mapping

from gkm.api.errors import Reason
from gkm.api.nodes import CapturedImage

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcomes import Broken, Holds, Outcome

AGAIN = "the agent tries again by itself, until capture.retention ends or newer captures fill capture.maxBytes"
_LOST = "the files were not copied, they are lost: free space, repair the node, or let the pod write fewer files"
_SUSPICIOUS = "look at who runs in the pod before anything else"
_KEPT = "captured/<volume>/content on the node has the files until capture.retention ends"
NEXT: Mapping[str, str] = {
    Reason.TOO_LARGE: "raise capture.maxBytes, if the message names it; if it names the generation, and most files "
    f"are of that, the family is full: let pods name another cache; if the message says that {_LOST}",
    Reason.DISK_FULL: _LOST,
    Reason.NODE_ERROR: _LOST,
    Reason.UNSAFE_CONTENT: _SUSPICIOUS,
    Reason.BACKEND_MISMATCH: _SUSPICIOUS,
    Reason.ARCHITECTURE_MISMATCH: _SUSPICIOUS,
    Reason.WARP_SIZE_MISMATCH: _SUSPICIOUS,
    Reason.DRIVER_TOO_OLD: _SUSPICIOUS,
    Reason.PTX_TOO_NEW: _SUSPICIOUS,
    Reason.METADATA_MISSING: _KEPT,
    Reason.METADATA_INVALID: _KEPT,
    Reason.CONTENT_MISMATCH: _KEPT,
}
"""For each reason of a refused capture, the next step."""


def decide_capture(facts: Facts) -> Outcome:
    """Decide whether the newest capture of the volume, if there is one, was refused or waits for a reason."""
    if not facts.may_be_captured:
        why = 'it says capture: "false"' if facts.attributes.get("capture") == "false" else "it is read-only"
        return Holds(f"the volume is not captured: {why}")
    found = facts.newest_capture
    if found is None:
        return Holds("no failure; the agent of the node reports no capture of the volume")
    if found.state == "Refused":
        return Broken(f"the capture was refused: {_cause(found)}", _next(found))
    if found.state == "Waiting":
        return Broken(f"the capture waits: {_cause(found)}", AGAIN) if found.reason else Holds("the capture waits")
    return Holds(f"captured: {found.image or found.message}")


def _cause(found: CapturedImage) -> str:
    return f"{found.reason}: {found.message}"


def _next(found: CapturedImage) -> str:
    return NEXT.get(found.reason, _KEPT).replace("<volume>", found.volume)
