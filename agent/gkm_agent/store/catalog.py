"""What the agent remembers of each entry of the store: its size, when it was last mounted, when it was last checked.

The records of mounts are gone with the mounts, so what they said is noted while they are there. Kept in one file beside
the store, written on change; a lost or garbled one costs a check of every entry and what was known of their use.
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


FILE = "entries.json"
MOUNTED_STEP = 3600.0
"""While an entry is mounted that is noted again so often (seconds): it bounds what a restart may forget of its use."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class EntryInfo(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is known of one entry. Times are seconds since the epoch, 0 for never.

    `mounted` is when a pod was last seen to mount it, `unnamed` since when no cache names it (0 while one does),
    `checked` when its content was last compared with its list, `boot` the boot in which its files were last counted and
    measured, `damage` the path of a file that is not as it must be.
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
    """The notes of one node's store, in memory and on its disk. Thread-safe."""

    def __init__(self, layout: Layout) -> None:
        self._path = layout.state / FILE
        self._lock = Lock()
        self._notes = _load(self._path)
        self._saved = dict(self._notes)
        self._complaint = ""
        self.boot = _boot()

    def entries(self) -> dict[str, EntryInfo]:
        """Return what is known, by digest."""
        with self._lock:
            return dict(self._notes)

    def damage_of(self, digest: str) -> str:
        """Return the path of a damaged file of an entry, "" while none is known."""
        with self._lock:
            note = self._notes.get(digest)
            return note.damage if note is not None else ""

    def record_usage(
        self, entries: AbstractSet[str], mounted: AbstractSet[str], now: float, size_of: Callable[[str], int]
    ) -> None:
        """Take in which entries there are and which of them records name; `size_of` is asked once for each new one."""
        with self._lock:
            new = entries - self._notes.keys()
        sizes = {digest: size_of(digest) for digest in new}
        with self._lock:
            for digest in self._notes.keys() - entries:
                del self._notes[digest]
            for digest, size in sizes.items():
                self._notes.setdefault(digest, EntryInfo(size))
            for digest, note in self._notes.items():
                if digest in mounted:
                    self._notes[digest] = _mounted(note, now)
                elif note.mounted > now:  # the clock was set back
                    self._notes[digest] = structs.replace(note, mounted=now)

    def record_unmounted(self, digests: AbstractSet[str], now: float) -> None:
        """Note that the last pod has gone from each of these, between the last look and this one."""
        with self._lock:
            for digest in digests & self._notes.keys():
                self._notes[digest] = structs.replace(self._notes[digest], mounted=now)

    def record_named(self, named: AbstractSet[str], now: float) -> None:
        """Take in which digests caches name; from now on those that are not among them are unnamed."""
        with self._lock:
            for digest, note in self._notes.items():
                since = 0.0 if digest in named else (min(note.unnamed, now) or now)
                self._notes[digest] = structs.replace(note, unnamed=since)

    def add(self, digest: str, size: int, now: float) -> None:
        """Take in an entry that has just been made: every file of it was hashed on its way."""
        with self._lock:
            self._notes[digest] = EntryInfo(size, checked=now, boot=self.boot)

    def record_check(self, digest: str, *, damage: str, content: bool, now: float) -> None:
        """Note how a check of an entry ended: of its whole content, or of sizes alone."""
        with self._lock:
            if note := self._notes.get(digest):
                at = now if content else note.checked
                self._notes[digest] = structs.replace(note, damage=damage, boot=self.boot, checked=at)

    def clear_damage(self, digest: str) -> None:
        """Note that what was found wrong with an entry is not."""
        with self._lock:
            if note := self._notes.get(digest):
                self._notes[digest] = structs.replace(note, damage="")

    def request_check(self) -> None:
        """Take every content for unchecked."""
        with self._lock:
            self._notes = {digest: structs.replace(note, checked=0.0) for digest, note in self._notes.items()}

    def remove(self, digest: str) -> None:
        """Drop what is known of an entry that is no longer there."""
        with self._lock:
            self._notes.pop(digest, None)

    def save(self) -> None:
        """Write the notes down if they changed. A disk that refuses costs nothing but memory after a restart."""
        with self._lock:
            notes = dict(self._notes)
        if notes == self._saved:
            return
        try:
            files.replace(self._path, msgspec.json.encode(_File(notes)), durable=False)
        except OSError as error:
            if self._complaint != (why := str(error)):
                _LOG.warning("notes about the store not written", extra=fields(why=why))
            self._complaint = why
            return
        self._saved, self._complaint = notes, ""


def _mounted(note: EntryInfo, now: float) -> EntryInfo:
    fresh = note.mounted <= now < note.mounted + MOUNTED_STEP
    return note if fresh else structs.replace(note, mounted=now)


def _load(path: Path) -> dict[str, EntryInfo]:
    try:
        found: Mapping[str, EntryInfo] = msgspec.json.decode(files.read_bounded(path), type=_File).entries
    except FileNotFoundError:
        return {}
    except (UnreadableState, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _LOG.warning("notes about the store are lost", extra=fields(why=str(error)))
        return {}
    return {digest: note for digest, note in found.items() if names.is_digest(digest)}


def _boot() -> str:
    """Return a name for this boot; "" where the kernel does not say, which makes every start look at every entry."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
