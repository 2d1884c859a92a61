"""Delay each node's push, because many nodes with a new kind of GPU compile the same files at the same time. Pure.

Each node waits for a time that hash(content, node) decides: no lease, and no node knows of another. Most wait long and
a few are early, as receivers of a multicast delay their answers (Nonnenmacher and Biersack, "Optimal Multicast
Feedback", 1998): the number of early ones hardly depends on the number of nodes. A later node finds the blobs in the
registry and sends no blobs.
"""

import hashlib
import math
from typing import Final

LONGEST_SECONDS: Final = 8.0
STEEPNESS: Final = 7.0
"""Steepness of the distribution of delays: with a larger value fewer nodes push early, and a single node waits
longer."""


def seconds(content_digest: str, node: str) -> float:
    """Return the delay in seconds before this node pushes content with this digest."""
    digest = hashlib.sha256(f"{content_digest}\n{node}".encode()).digest()
    drawn = int.from_bytes(digest[:8], "big") / 2**64
    return LONGEST_SECONDS * math.log1p(drawn * math.expm1(STEEPNESS)) / STEEPNESS
