"""The caches of this node from a directory of manifests, in the form that `kubectl apply` takes.

An unreadable file counts as its last readable version: a half-written file deletes no cache. A file that was never
readable leaves the source incomplete, so the agent deletes nothing.
"""

import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread

from gkm.hoststate.files import UnreadableState, read_bounded
from gkm.hoststate.logs import fields
from gkm.kube.secrets import secret_missing

from gkm_agent.caches.model import WantedCache
from gkm_agent.standalone.manifests import BadManifest, Manifests, manifests_in

_LOG = logging.getLogger(__name__)

SCAN_SECONDS = 2.0
MAX_FILES = 10_000
MAX_BYTES = 1 << 20
_SUFFIXES = {".yaml", ".yml", ".json"}


@dataclass(frozen=True, slots=True)
class _File:
    """A file at its last read; `manifests` is None while it was never readable."""

    stamp: tuple[int, int, int]
    manifests: Manifests | None


class FileSource:
    """The CacheSource of a directory. It polls, because polling works on every file system."""

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
            return self._listed and all(file.manifests is not None for file in self._files.values())

    def caches(self) -> list[WantedCache]:
        """See CacheSource; of two manifests for one cache, the one in the first file by name wins."""
        last_first = [manifests.caches for manifests in self._last_first()]
        return list({cache.ref: cache for caches in last_first for cache in reversed(caches)}.values())

    def data(self, namespace: str, name: str) -> dict[str, str]:
        """See Secrets; of two manifests for one Secret, the one in the first file by name wins."""
        last_first = [manifests.secrets for manifests in self._last_first()]
        found = {key: data for secrets in last_first for key, data in secrets.items()}
        if (namespace, name) not in found:
            raise secret_missing(namespace, name)
        return found[namespace, name]

    def _last_first(self) -> list[Manifests]:
        with self._lock:
            files = sorted(self._files.items(), reverse=True)
        return [file.manifests for _, file in files if file.manifests]

    def start(self) -> None:
        """Read the directory once, then start to poll it."""
        self.scan()
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """See CacheSource; `start` has read the directory already."""
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
                _LOG.error("listing of manifests failed", extra=fields(directory=str(self._directory), why=str(error)))
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
            _LOG.error("manifest skipped", extra=fields(file=name, why=str(error)))
            return _File(stamp, before.manifests if before is not None else None)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self.scan()


def _listed(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Return {name: stamp} of the manifests; follow links, because the files of a mounted ConfigMap are links."""
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
