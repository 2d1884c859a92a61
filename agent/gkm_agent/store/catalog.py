"""The catalog of the store: the size, last use and last check of each entry.

A volume record disappears with its mount, so the catalog records the use while the mount exists. It is one file beside
the store, written on change. A lost or garbled file costs a check of every entry and the history of their use.
"""

import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from threading import Lock

import msgspec
from gkm.hoststate import files, names
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from msgspec import Struct, structs

_LOG = logging.getLogger(__name__)


MOUNTED_STEP = 3600.0
"""Interval in seconds between updates of a mounted entry's last use: a restart loses at most this much."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class EntryInfo(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The facts about one entry. Times are seconds since the epoch, 0 for never.

    `mounted` is the last time at which a pod mounted the entry. `unnamed` is the time since which no cache names it (0
    while a cache names it). `checked` is the last check of its content against the file list, `boot` the id of the boot
    in which its names and sizes were last checked. `damage` is the path of a damaged file.
    """

    size_bytes: int = 0
    mounted: float = 0.0
    unnamed: float = 0.0
    checked: float = 0.0
    boot: str = ""
    damage: str = ""


class _File(Struct):
    entries: dict[str, EntryInfo]


class EntryCatalog:
    """The catalog of one node's store, in memory and on disk. Thread-safe."""

    def __init__(self, layout: Layout) -> None:
        self._path = layout.catalog
        self._lock = Lock()
        self._entries = _load(self._path)
        self._saved = dict(self._entries)
        self._last_error = ""
        self.boot = _boot()

    def entries(self) -> dict[str, EntryInfo]:
        """Return the facts about each entry by its digest."""
        with self._lock:
            return dict(self._entries)

    def damage_of(self, digest: str) -> str:
        """Return the path of a damaged file of an entry, "" without known damage."""
        with self._lock:
            info = self._entries.get(digest)
            return info.damage if info is not None else ""

    def record_usage(
        self, entries: AbstractSet[str], mounted: AbstractSet[str], now: float, size_of: Callable[[str], int]
    ) -> None:
        """Record which entries exist and which are mounted now; `size_of` is called once for each new entry."""
        with self._lock:
            new = entries - self._entries.keys()
        sizes = {digest: size_of(digest) for digest in new}
        with self._lock:
            for digest in self._entries.keys() - entries:
                del self._entries[digest]
            for digest, size in sizes.items():
                self._entries.setdefault(digest, EntryInfo(size))
            for digest, info in self._entries.items():
                if digest in mounted:
                    self._entries[digest] = _mounted(info, now)
                elif info.mounted > now:  # the clock was set back
                    self._entries[digest] = structs.replace(info, mounted=now)

    def record_unmounted(self, digests: AbstractSet[str], now: float) -> None:
        """Record that the last pod unmounted each of these entries since the last pass."""
        with self._lock:
            for digest in digests & self._entries.keys():
                self._entries[digest] = structs.replace(self._entries[digest], mounted=now)

    def record_named(self, named: AbstractSet[str], now: float) -> None:
        """Record the digests that caches name now; all other entries are unnamed from now on."""
        with self._lock:
            for digest, info in self._entries.items():
                since = 0.0 if digest in named else (min(info.unnamed, now) or now)
                self._entries[digest] = structs.replace(info, unnamed=since)

    def add(self, digest: str, size: int, now: float) -> None:
        """Record a new entry as checked: the extraction hashed every file."""
        with self._lock:
            self._entries[digest] = EntryInfo(size, checked=now, boot=self.boot)

    def record_check(self, digest: str, *, damage: str, content: bool, now: float) -> None:
        """Record the result of a check; `content` tells a check of every byte from a check of names and sizes."""
        with self._lock:
            if info := self._entries.get(digest):
                at = now if content else info.checked
                self._entries[digest] = structs.replace(info, damage=damage, boot=self.boot, checked=at)

    def clear_damage(self, digest: str) -> None:
        """Record that an entry is no longer damaged."""
        with self._lock:
            if info := self._entries.get(digest):
                self._entries[digest] = structs.replace(info, damage="")

    def request_check(self) -> None:
        """Mark every entry as unchecked, so that the scrubber reads its content again."""
        with self._lock:
            self._entries = {digest: structs.replace(info, checked=0.0) for digest, info in self._entries.items()}

    def remove(self, digest: str) -> None:
        """Forget an entry that was removed."""
        with self._lock:
            self._entries.pop(digest, None)

    def save(self) -> None:
        """Write the catalog if it changed. If the write fails, a restart loses the changes."""
        with self._lock:
            entries = dict(self._entries)
        if entries == self._saved:
            return
        try:
            files.replace(self._path, msgspec.json.encode(_File(entries)), durable=False)
        except OSError as error:
            if self._last_error != (message := str(error)):
                _LOG.warning("store catalog not written, a restart loses its changes", extra=fields(why=message))
            self._last_error = message
            return
        self._saved, self._last_error = entries, ""


def digests_in(directory: Path) -> set[str]:
    """Return the digests whose hexadecimal digits name files or directories in a directory; skip other names."""
    found = (f"sha256:{name}" for name in files.names_in(directory))
    return {digest for digest in found if names.is_digest(digest)}


def _mounted(info: EntryInfo, now: float) -> EntryInfo:
    fresh = info.mounted <= now < info.mounted + MOUNTED_STEP
    return info if fresh else structs.replace(info, mounted=now)


def _load(path: Path) -> dict[str, EntryInfo]:
    try:
        found: Mapping[str, EntryInfo] = msgspec.json.decode(files.read_bounded(path), type=_File).entries
    except FileNotFoundError:
        return {}
    except (OSError, UnreadableState, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _LOG.warning("store catalog unreadable, replaced by an empty one", extra=fields(why=str(error)))
        return {}
    return {digest: info for digest, info in found.items() if names.is_digest(digest)}


def _boot() -> str:
    """Return the id of this boot; "" if the kernel has no id, which makes every start check every entry."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
