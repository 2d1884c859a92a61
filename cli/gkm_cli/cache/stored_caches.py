"""`gkm exec --list` and `--prune`: the caches in the store of `gkm exec`, and the removal of those not in use."""

from datetime import UTC, datetime
from typing import Any

from gkm.api.grammar import count_of
from gkm.api.meta import timestamp

from gkm_cli.cache.run_store import RunStore, StoredCache
from gkm_cli.output import Output, line, show, table

_HEX = slice(7, 19)
"""As container runtimes abbreviate digests."""
_MIB = 1 << 20


def show_caches(store: RunStore, output: Output) -> None:
    """Show all caches in the store of `gkm exec`, the last used first; the store stays as it is.

    Raises:
        OSError: the store cannot be read.
    """
    entries = [_entry(store, found) for found in reversed(store.caches())]
    show(entries, output, lambda: _print(store, entries))


def prune(store: RunStore, keep_bytes: int, output: Output) -> None:
    """Remove unused caches from the store, except the last used ones up to `keep_bytes`, and show how many.

    Raises:
        UsageError: the store is another user's.
        OSError: the store cannot be written.
    """
    removed: list[StoredCache] = []
    if store.layout.state.exists():  # a store is not made to be emptied
        store.make()
        removed = store.prune(keep_bytes)
    freed = sum(each.size_bytes for each in removed)
    kept = store.caches()
    used = sum(store.is_used(each.digest) for each in kept)
    result = {"removed": [each.digest for each in removed], "freedBytes": freed, "kept": len(kept), "inUse": used}
    gone, left = count_of(len(removed), "cache"), count_of(len(kept), "cache")
    text = f"removed {gone}, {_size(freed)}; {left} left, {used} in use"
    show(result, output, lambda: line(text))


def _entry(store: RunStore, found: StoredCache) -> dict[str, Any]:
    return {
        "image": store.reference(found.digest),
        "digest": found.digest,
        "sizeBytes": found.size_bytes,
        "files": found.files,
        "lastUse": timestamp(datetime.fromtimestamp(found.last_use, UTC)) if found.last_use else "",
        "inUse": store.is_used(found.digest),
        "damage": found.damage,
    }


def _print(store: RunStore, entries: list[dict[str, Any]]) -> None:
    if not entries:
        line(f"no caches in {store.layout.state}")
        return
    rows = [
        (
            each["digest"][_HEX],
            "damaged" if each["damage"] else _size(each["sizeBytes"]),
            each["lastUse"],
            "yes" if each["inUse"] else "no",
            each["image"],
        )
        for each in entries
    ]
    table(("digest", "size", "last use", "in use", "image"), rows)


def _size(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
