"""The signature: the controllers have verified the digest, or the configuration does not require it."""

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome, kubectl
from gkm_cli.why.remedies import remedy


def decide(facts: Facts) -> Outcome:
    """Decide about the signature."""
    verified = facts.existing_cache.status.condition("Verified")
    if verified is None:
        return Broken(
            "the controllers have not verified the image yet",
            f"wait some seconds; else see whether they run: {kubectl('get', 'pods', '-n', 'gkm-system')}",
        )
    if verified.status != "True":
        return Broken(f"{verified.reason}: {verified.message}", remedy(verified.reason))
    return Holds(f"{verified.reason}: {verified.message}" if verified.message else verified.reason)
