"""The order in which nodes pull an image if the cache limits how many pull at a time (docs/reference/rollout.md). Pure.

Every node has a rank for every digest: a hash of both. The controllers publish the last rank that is open; an agent
compares it with its own. No node needs a lease, and no list of names is published.
"""

import hashlib
from typing import Annotated

from msgspec import Meta, Struct

RANK_PATTERN = "^[0-9a-f]{16}$"
MAX_CONCURRENT_NODES = 100_000
LAST_RANK = "f" * 16

Rank = Annotated[str, Meta(pattern=RANK_PATTERN, description="Rank of a node in the order of a rollout.")]


class RolloutPolicy(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How many nodes pull the image at a time."""

    max_concurrent_nodes: Annotated[int, Meta(ge=1, le=MAX_CONCURRENT_NODES, extra_json_schema={"format": "int32"})]
    """Nodes that pull the image at a time. The others wait, and serve the earlier image of a tracked tag meanwhile."""


class RolloutStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which nodes may pull a digest of a cache during its rollout."""

    digest: Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
    """Digest that the rollout is about."""
    open_rank: Rank
    """Last rank that is open: nodes up to this rank pull the image."""


def rank_of(node: str, digest: str) -> str:
    """Return the rank of a node for a digest: a 64-bit hash in hexadecimal; nodes pull in the order of their ranks.

    The digest is a part of it, so that no node is always the first.
    """
    return hashlib.sha256(f"{digest}\n{node}".encode()).hexdigest()[:16]


def is_open(policy: RolloutPolicy | None, status: RolloutStatus | None, node: str, digest: str) -> bool:
    """Return whether the rollout of a cache lets a node pull a digest now; always True without a policy."""
    if policy is None:
        return True
    return status is not None and status.digest == digest and rank_of(node, digest) <= status.open_rank
