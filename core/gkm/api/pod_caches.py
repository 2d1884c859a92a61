"""How a pod names a cache by labels, and the annotation that reports the additions (docs/how-to/caches-by-label.md)."""

from typing import Final

CACHE: Final = "gkm.io/cache"
"""Label of a pod: the name of a GKMCache of its namespace. An empty value switches the default of the namespace off."""
CLUSTER_CACHE: Final = "gkm.io/cluster-cache"
"""Label of a pod: the name of a ClusterGKMCache."""
DEFAULT_CACHE: Final = "gkm.io/default-cache"
"""Label of a namespace: the GKMCache of its pods without these labels."""

CONTAINER: Final = "gkm.io/cache-container"
MODE: Final = "gkm.io/cache-mode"
PATH: Final = "gkm.io/cache-path"
NODES: Final = "gkm.io/cache-nodes"
IF_UNAVAILABLE: Final = "gkm.io/cache-if-unavailable"
INJECTED: Final = "gkm.io/injected"
"""Annotations of a pod; INJECTED has the webhook's report as JSON, the others are options of the user."""

LABELS: Final = frozenset({CACHE, CLUSTER_CACHE})
ANNOTATIONS: Final = frozenset({CONTAINER, MODE, PATH, NODES, IF_UNAVAILABLE, INJECTED})

VOLUMES: Final = ("gkm-cache", "gkm-cluster-cache")
"""Names of the volumes that the webhook adds, for a GKMCache and a ClusterGKMCache."""

WEBHOOK: Final = "gkm-pod-caches"
"""The MutatingWebhookConfiguration."""
