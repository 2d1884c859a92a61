"""How many trees of one cache each namespace may have on a node: a cache may be shared by many tenants. Pure.

Three rules: a namespace has a share of its own; all have a bound together; and beyond that bound every namespace still
gets its first tree, so that what others do never keeps a workload from the cache. So there are at most MAX_TREES, and
one more for each namespace with pods on the node.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

MAX_TREES: Final = 16
"""Of one cache, those that no volume uses included: who may create pods may think of any number of paths."""
NAMESPACE_TREES: Final = 8
"""Of those, for the volumes of one namespace. Workloads use one or two; a private volume takes another tree than a
read-only one at the same path."""


class TooMany(Exception):
    """A namespace uses all of its share; the message is one line that a person can act on."""


class AllInUse(Exception):
    """Other namespaces use as many trees of one cache as may be; the caller did nothing wrong, and may try again."""


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
            f"mount paths, read-only and private ones counted apart; use fewer"
        )


def check_all(uses: Uses, key: str, there: int) -> None:
    """Accept one more tree beside those that are `there` and in use.

    Raises:
        AllInUse: there is none to be had, and the namespace has one already.
    """
    if there >= MAX_TREES and not set(uses.own) <= {key}:
        raise AllInUse(f"volumes of several namespaces on this node use the cache at {MAX_TREES} different mount paths")
