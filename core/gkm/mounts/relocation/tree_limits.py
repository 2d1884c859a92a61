"""Limits on the relocated trees of one cache on a node, which many tenants may share. Pure.

Three rules: each namespace has a share; all namespaces have a common limit; and beyond that limit each namespace still
gets its first tree, so that no tenant can keep another one's workload from the cache. So a cache has at most MAX_TREES,
and one more for each namespace with pods on the node.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

MAX_TREES: Final = 16
"""Limit of rewritten trees of one cache on a node, including unused ones; a pod author may choose any path."""
NAMESPACE_TREES: Final = 8
"""Limit of trees of one cache for one namespace. Read-only and private volumes need different trees for one path."""


class TooMany(Exception):
    """The namespace has used up its share of relocated trees; the message tells a person what to do."""


class AllInUse(Exception):
    """Other namespaces use all relocated trees of a cache; the caller may retry."""


@dataclass(frozen=True, slots=True)
class Uses:
    """The relocated trees that volumes of a cache use, by key: of `every` namespace, and of the caller's `own`.

    They are not `complete` while a volume is mounted whose tree is not known: any tree may be in use then.
    """

    every: Collection[str] = ()
    own: Collection[str] = ()
    complete: bool = True


def check_share(uses: Uses, key: str) -> None:
    """Check that the volumes of a namespace may use the relocated tree `key` of a cache.

    Raises:
        TooMany: the share of the namespace is used up.
    """
    if len({*uses.own, key}) > NAMESPACE_TREES:
        raise TooMany(
            f"volumes of this namespace on this node would use the cache at more than {NAMESPACE_TREES} different "
            f"mount paths, read-only and private ones counted separately; use fewer"
        )


def check_all(uses: Uses, key: str, existing: int) -> None:
    """Check that one more relocated tree of a cache may exist beside the `existing` used ones.

    Raises:
        AllInUse: the limit is reached, and the namespace has a tree already, or the uses are not complete.
    """
    if existing >= MAX_TREES and not uses.complete:
        raise AllInUse(
            f"the record of a mounted volume on this node is unreadable, so each of the {MAX_TREES} mount paths of the "
            f"cache may be in use"
        )
    if existing >= MAX_TREES and not set(uses.own) <= {key}:
        raise AllInUse(f"volumes of several namespaces on this node use the cache at {MAX_TREES} different mount paths")
