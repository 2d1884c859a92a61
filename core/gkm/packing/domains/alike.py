"""Which domains need not be looked at, because enough others like them have smaller keys (calculus.md, Method).

Of domains that are alike in one block a plan of the smallest keys uses the first, and of blocks that are alike.
"""

from collections import Counter
from collections.abc import Hashable, Sequence


def first_of_alike(kinds: Sequence[Hashable], most: Sequence[int], blocks: Sequence[range], groups: int) -> list[int]:
    """Return the numbers of the domains to look at, in order.

    `kinds` says which domains are alike, `most` how many of its kind in one block any plan uses; `blocks` are runs of
    domains. A plan uses no more blocks than there are `groups`.
    """
    seen: Counter[tuple[Hashable, ...]] = Counter()
    found: list[int] = []
    for domains in blocks:
        used: Counter[Hashable] = Counter()
        first: list[int] = []
        for domain in domains:
            used[kinds[domain]] += 1
            if used[kinds[domain]] <= most[domain]:
                first.append(domain)
        alike = tuple([kinds[domain] for domain in first])
        seen[alike] += 1
        if seen[alike] <= groups:
            found += first
    return found
