"""The object: the cache that the volume names exists."""

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome, kubectl


def decide(facts: Facts) -> Outcome:
    """Decide about the object."""
    cache = facts.cache.value
    if cache is None:
        where = ("-n", facts.cache_name.namespace) if facts.cache_name and facts.cache_name.namespace else ()
        kind = f"{facts.cache_name.kind.lower()}s" if facts.cache_name else ""
        return Broken(
            f"there is no {facts.named}",
            f"create it, or correct the name in the volume's attributes; {kubectl('get', kind, *where)} lists them",
        )
    if cache.metadata.deletion_timestamp:
        return Broken(f"{facts.named} is being deleted", "create it again once it is gone")
    return Holds(f"{facts.named}, image {cache.spec.image}")
