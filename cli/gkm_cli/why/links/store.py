"""The store: the node has the verified digest on its disk."""

from gkm.api.nodes import NodeCacheStatus

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome
from gkm_cli.why.remedies import remedy

_WORKING = {"Downloading", "Extracting"}


def decide(facts: Facts) -> Outcome:
    """Decide about the content on the node."""
    found = facts.on_node or NodeCacheStatus(state="Pending")
    wanted = facts.existing_cache.status.resolved_digest
    if found.state == "Ready" and found.digest == wanted:
        return Holds(f"{found.size_bytes} bytes of {found.digest}")
    if found.state == "Ready":
        return Broken(
            f"the node still has {found.digest}, the cache is {wanted}", "wait: the agent fetches the new image"
        )
    if found.state in _WORKING:
        return Broken(f"the node is {found.state}, at {found.progress} %", "wait: kubelet retries the mount")
    cause = ": ".join(filter(None, (found.reason, found.message)))
    again = f"; the agent tries again at {found.next_try}" if found.next_try else ""
    if found.reason:
        return Broken(f"{found.state}: {cause}{again}", remedy(found.reason))
    return Broken(f"{found.state}{f': {cause}' if cause else ''}{again}", "wait: the agent of the node has not begun")
