"""The first import of all tests in a fresh clone: one worker of xdist compiles them, for all workers.

pytest rewrites each test before it compiles it. Workers that begin at the same time would all do so.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def by_one_at_first(stamp: Path) -> Iterator[None]:
    """Let one process run the block before all others; `stamp` tells that one has."""
    if stamp.exists():
        yield
        return
    stamp.parent.mkdir(parents=True, exist_ok=True)
    with stamp.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            yield
            stamp.touch()
            return
    yield
