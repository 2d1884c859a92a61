"""What a watcher of the bench came to; standard library only, so that its memory is that of what it measures."""

import sys
import time
from dataclasses import dataclass, field

Digests = dict[str, str]
"""The digest of every cache."""


@dataclass
class Answer:
    """`sums` are total, ready and failed nodes by cache; `seen` is when a resourceVersion was taken in."""

    sums: dict[str, list[int]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def take(self, version: str) -> None:
        """Remember that the change of this version counts now."""
        self.seen[version] = time.monotonic_ns()

    def synced(self) -> None:
        """Say that everything was listed."""
        sys.stdout.write("synced\n")
        sys.stdout.flush()
