"""The digest: the controllers have resolved the image of the object as it is now."""

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome, kubectl
from gkm_cli.why.remedies import remedy


def decide(facts: Facts) -> Outcome:
    """Decide about the digest."""
    cache = facts.existing_cache
    status = cache.status
    if status.resolved_digest and status.image == cache.spec.image:
        return Holds(status.resolved_digest)
    verified = status.condition("Verified")
    if verified is not None and verified.status != "True":
        return Broken(f"{verified.reason}: {verified.message}", remedy(verified.reason))
    return Broken(
        "the controllers have not resolved the image yet",
        f"wait some seconds; else see whether they run: {kubectl('get', 'pods', '-n', 'gkm-system')}",
    )
