"""Caches from a directory of manifests: the same files that `kubectl apply` takes, for machines without Kubernetes.

A file that cannot be read right now keeps what it last said: half a file under an editor deletes no cache. A file that
never could be read leaves the source incomplete, so that nothing is taken for deleted because of it.
"""

import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread

from gkm.hoststate.files import UnreadableState, read_bounded
from gkm.hoststate.logs import fields
from gkm.kube.secrets import StaticSecrets

from gkm_agent.caches.model import WantedCache
from gkm_agent.standalone.manifests import BadManifest, Manifests, manifests_in

_LOG = logging.getLogger(__name__)

SCAN_SECONDS = 2.0
MAX_FILES = 10_000
MAX_BYTES = 1 << 20
_SUFFIXES = {".yaml", ".yml", ".json"}


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it was read: `held` is None while it never could be."""

    stamp: tuple[int, int, int]
    held: Manifests | None


class FileSource:
    """The CacheSource of a directory; looked at on an interval, which works on every file system."""

    def __init__(self, directory: Path, changed: Event, interval: float = SCAN_SECONDS) -> None:
        self._directory = directory
        self._changed = changed
        self._interval = interval
        self._files: dict[str, _File] = {}
        self._listed = False
        self._lock = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="static source", daemon=True)

    @property
    def synced(self) -> bool:
        """See CacheSource."""
        with self._lock:
            return self._listed and all(file.held is not None for file in self._files.values())

    def caches(self) -> list[WantedCache]:
        """See CacheSource; of two manifests for one cache the first file's counts."""
        with self._lock:
            last_first = [file.held.caches for _, file in sorted(self._files.items(), reverse=True) if file.held]
        return list({cache.ref: cache for caches in last_first for cache in reversed(caches)}.values())

    def data(self, namespace: str, name: str) -> dict[str, str]:
        """See Secrets: those among the manifests; of two with one name the first file's counts."""
        with self._lock:
            last_first = [file.held.secrets for _, file in sorted(self._files.items(), reverse=True) if file.held]
        return StaticSecrets({key: data for secrets in last_first for key, data in secrets.items()}).data(
            namespace, name
        )

    def start(self) -> None:
        """Read the directory once, then go on looking."""
        self.scan()
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """See CacheSource: `start` has looked already."""
        del seconds
        return True

    def stop(self) -> None:
        """See CacheSource."""
        self._stop.set()

    def scan(self) -> None:
        """Read every file that changed since the last scan."""
        try:
            listed = _listed(self._directory)
        except OSError as error:
            if self._listed or not self._files:
                _LOG.error("manifests cannot be listed", extra=fields(directory=str(self._directory), why=str(error)))
            with self._lock:
                self._listed = False
            return
        with self._lock:
            before = self._files
        after = {name: self._read(name, stamp, before.get(name)) for name, stamp in listed.items()}
        with self._lock:
            changed = after != before or not self._listed
            self._files, self._listed = after, True
        if changed:
            self._changed.set()

    def _read(self, name: str, stamp: tuple[int, int, int], before: _File | None) -> _File:
        if before is not None and before.stamp == stamp:
            return before
        try:
            return _File(stamp, manifests_in(read_bounded((self._directory / name).resolve(), MAX_BYTES)))
        except (OSError, UnreadableState, BadManifest) as error:
            _LOG.error("manifest not understood", extra=fields(file=name, why=str(error)))
            return _File(stamp, before.held if before is not None else None)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self.scan()


def _listed(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Return {name: stamp} of the manifests; a mounted ConfigMap's files are links, so links are followed."""
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(".") or Path(entry.name).suffix not in _SUFFIXES:
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found[entry.name] = (status.st_mtime_ns, status.st_size, status.st_ino)
            if len(found) > MAX_FILES:
                raise OSError(f"more than {MAX_FILES} manifests")
    return found
