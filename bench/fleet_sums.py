"""The result of a watcher; standard library only, so that its memory is that of the measured code."""

import time
from dataclasses import dataclass, field
from pathlib import Path

Digests = dict[str, str]
"""The digest of every cache."""


@dataclass
class WatchResult:
    """`sums` are total, ready and failed nodes by cache; `seen` is the time of each resourceVersion.

    `listed` is a file that appears at the end of the first list.
    """

    listed: Path
    sums: dict[str, list[int]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def take(self, version: str) -> None:
        """Record the time of this version's change."""
        self.seen[version] = time.monotonic_ns()

    def synced(self) -> None:
        """Record the end of the first list."""
        self.listed.touch()
