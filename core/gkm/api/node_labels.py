"""The label of a Node for a cache that is ready there: agents write it, and the affinity of pods names it."""

import re
from typing import Final

CACHE_PREFIX: Final = "cache.gkm.io/"
CLUSTER_SCOPE: Final = "cluster_scoped"
"""In place of a namespace in the label of a ClusterGKMCache: valid in a label key, invalid as a namespace."""

# The syntax of a key's name and of a value (Kubernetes, "Labels and Selectors"); a value may also be empty.
NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


def cache_label(namespace: str | None, name: str) -> str | None:
    """Return the key of the Node label of a ready cache, None if the cache's name gives no valid key."""
    found = f"{namespace or CLUSTER_SCOPE}.{name}"
    return CACHE_PREFIX + found if NAME.fullmatch(found) else None
