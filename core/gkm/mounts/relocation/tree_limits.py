"""Limits on the relocated trees of one cache on a node, which many tenants may share. Pure.

Three rules: each namespace has a share; all namespaces have a common limit; and beyond that limit each namespace still
gets its first tree, so that no tenant can keep another one's workload from the cache. So a cache has at most MAX_TREES,
and one more for each namespace with pods on the node.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

MAX_TREES: Final = 16
"""The trees of one cache, unused ones included: an author of pods may choose any number of paths."""
NAMESPACE_TREES: Final = 8
"""The trees among them for the volumes of one namespace. Workloads use one or two; a private volume needs another tree
than a read-only one at the same path."""


class TooMany(Exception):
    """A namespace uses all of its share; the message is one line that a person can act on."""


class AllInUse(Exception):
    """Other namespaces use all trees of one cache; the caller is not at fault, and may repeat its call."""


@dataclass(frozen=True, slots=True)
class Uses:
    """The keys of the layers that volumes of one cache use: of `every` namespace, and of the caller's `own`."""

    every: Collection[str] = ()
    own: Collection[str] = ()


def check_share(uses: Uses, key: str) -> None:
    """Accept that a namespace uses one more tree.

    Raises:
        TooMany: its share is used up.
    """
    if len({*uses.own, key}) > NAMESPACE_TREES:
        raise TooMany(
            f"volumes of this namespace on this node would use the cache at more than {NAMESPACE_TREES} different "
            f"mount paths, read-only and private ones counted separately; use fewer"
        )


def check_all(uses: Uses, key: str, existing: int) -> None:
    """Accept one more tree beside the `existing` ones in use.

    Raises:
        AllInUse: the limit is reached, and the namespace has a tree already.
    """
    if existing >= MAX_TREES and not set(uses.own) <= {key}:
        raise AllInUse(f"volumes of several namespaces on this node use the cache at {MAX_TREES} different mount paths")
