"""The caches of this node from a directory of manifests, in the form that `kubectl apply` takes.

For an unreadable file, the last readable version stays in use: a half-written file deletes no cache. A file that was
never readable leaves the source incomplete, so the agent deletes no files.

A manifest has caches and the Secrets that they name, in YAML with several documents.
"""

import base64
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread

import msgspec
from gkm.api import documents
from gkm.api.caches import Cache, GKMCache
from gkm.api.meta import API_VERSION, ObjectMeta
from gkm.hoststate.files import UnreadableState, read_bounded
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef, InvalidName
from gkm.kube.secrets import secret_missing
from msgspec import Struct

from gkm_agent.caches.model import WantedCache, membership, pull_secrets

_LOG = logging.getLogger(__name__)
SCAN_SECONDS = 2.0
MAX_FILES = 10_000
MAX_BYTES = 1 << 20
_SUFFIXES = {".yaml", ".yml", ".json"}
DEFAULT_NAMESPACE = "default"  # as kubectl
_UNKNOWN = 0, 0, 0
"""The stamp of a file that cannot be looked at or read: the next scan reads it again."""
MAX_DOCUMENTS = 1000


@dataclass(frozen=True, slots=True)
class Manifests:
    """The content of a manifest file: caches, and Secrets with base64 data by namespace and name.

    Secrets are never logged.
    """

    caches: tuple[WantedCache, ...] = ()
    secrets: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class _File:
    """A file at its last read; `manifests` is None while it was never readable."""

    stamp: tuple[int, int, int]
    manifests: Manifests | None


class FileSource:
    """The CacheSource of a directory of manifests. It polls, because polling works on every file system."""

    def __init__(self, directory: Path, changed: Event, interval: float = SCAN_SECONDS) -> None:
        self._directory = directory
        self._changed = changed
        self._interval = interval
        self._files: dict[str, _File] = {}
        self._listed: bool | None = None
        """Whether the last scan could list the directory, None before the first."""
        self._was_listed = False
        self._lock = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="static source", daemon=True)

    @property
    def synced(self) -> bool:
        """Implement CacheSource.synced."""
        with self._lock:
            return bool(self._listed) and all(file.manifests is not None for file in self._files.values())

    def caches(self) -> list[WantedCache]:
        """Implement CacheSource.caches; if two manifests name one cache, the first file by name wins."""
        last_first = [manifests.caches for manifests in self._last_first()]
        return list({cache.ref: cache for caches in last_first for cache in reversed(caches)}.values())

    def data(self, namespace: str, name: str) -> dict[str, str]:
        """Implement Secrets.data; if two manifests name one Secret, the first file by name wins."""
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
        """Read the directory once, then start a thread that polls it."""
        self.scan()
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Implement CacheSource.wait; `start` has tried to read the directory already."""
        del seconds
        return self._was_listed

    def stop(self) -> None:
        """Implement CacheSource.stop."""
        self._stop.set()

    def scan(self) -> None:
        """Read every file that changed since the last scan."""
        try:
            listed = _listed(self._directory)
        except OSError as error:
            if self._listed is not False:
                _LOG.error(
                    "directory of cache manifests not listed, known caches are kept",
                    extra=fields(directory=str(self._directory), why=str(error)),
                )
            with self._lock:
                self._listed = False
            return
        with self._lock:
            before = self._files
        after = {name: self._read(name, stamp, before.get(name)) for name, stamp in listed.items()}
        with self._lock:
            changed = after != before or not self._listed
            self._files, self._listed, self._was_listed = after, True, True
        if changed:
            self._changed.set()

    def _read(self, name: str, stamp: tuple[int, int, int], before: _File | None) -> _File:
        if before is not None and before.stamp == stamp:
            return before
        path = self._directory / name
        try:
            return _File(stamp, manifests_in(read_bounded(Path(os.path.realpath(path, strict=True)), MAX_BYTES)))
        except (OSError, UnreadableState, BadManifest) as error:
            if not isinstance(error, BadManifest):
                stamp = _UNKNOWN
            if before is None or before.stamp != _UNKNOWN:
                _LOG.error(
                    "cache manifest unreadable, its last readable version is used if known",
                    extra=fields(file=name, why=str(error)),
                )
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
            except OSError:
                found[entry.name] = _UNKNOWN
            else:
                if stat.S_ISREG(status.st_mode):
                    found[entry.name] = (status.st_mtime_ns, status.st_size, status.st_ino)
            if len(found) > MAX_FILES:
                raise OSError(f"the directory has more than {MAX_FILES} manifests")
    return found


class BadManifest(ValueError):
    """A manifest is invalid; the message names the document and the cause."""


class _SecretData(Struct, rename="camel"):
    """A Secret as `kubectl get secret -o yaml` prints it, or with plain text in `stringData`."""

    metadata: ObjectMeta
    data: dict[str, str] = msgspec.field(default_factory=dict)
    string_data: dict[str, str] = msgspec.field(default_factory=dict)


def manifests_in(text: bytes) -> Manifests:
    """Return the caches and the Secrets in the text of a manifest file.

    Raises:
        BadManifest: the text is not YAML, or a document is no cache and no Secret.
    """
    caches: list[WantedCache] = []
    secrets: dict[tuple[str, str], dict[str, str]] = {}
    for number, document in enumerate(_documents(text), 1):
        if isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) == ("v1", "Secret"):
            secrets |= _secret(document, number)
        else:
            caches.append(_wanted(document, number))
    return Manifests(tuple(caches), secrets)


def _documents(text: bytes) -> Iterator[object]:
    try:
        found = (document for document in documents.decode_all(text) if document is not None)
        for number, document in enumerate(found, 1):
            if number > MAX_DOCUMENTS:
                raise BadManifest(f"the manifest has more than {MAX_DOCUMENTS} documents")
            yield document
    except documents.InvalidYAML as error:
        raise BadManifest(f"not YAML: {error}") from error


def _wanted(document: object, number: int) -> WantedCache:
    where = f"document {number}"
    try:
        cache: Cache = msgspec.convert(document, type=Cache)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadManifest(f"{where}: {error}") from error
    if cache.api_version != API_VERSION:
        raise BadManifest(f"{where}: apiVersion is {cache.api_version[:60]!r}, not {API_VERSION}")
    namespace = (cache.metadata.namespace or DEFAULT_NAMESPACE) if isinstance(cache, GKMCache) else None
    try:
        ref = CacheRef(namespace, cache.metadata.name)
    except InvalidName as error:
        raise BadManifest(f"{where}: {error}") from error
    return WantedCache(ref, cache.spec.image, pull_secrets=pull_secrets(cache), membership=membership(cache.spec))


def _secret(document: object, number: int) -> dict[tuple[str, str], dict[str, str]]:
    try:
        secret = msgspec.convert(document, type=_SecretData)
    except (msgspec.ValidationError, RecursionError) as error:
        # The error names the type and path of a wrong value, not the value.
        raise BadManifest(f"document {number}: invalid Secret: {error}") from error
    plain = {key: base64.b64encode(text.encode()).decode() for key, text in secret.string_data.items()}
    return {(secret.metadata.namespace or DEFAULT_NAMESPACE, secret.metadata.name): secret.data | plain}
