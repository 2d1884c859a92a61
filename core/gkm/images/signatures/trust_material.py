"""Files that policies name, keys and trusted roots: read on first use, and again when a file changes. Thread-safe.

A replaced file (a changed ConfigMap or Secret) takes effect on the next call, so the removal of a key needs no restart.

The trusted root is Sigstore's trusted_root.json: certificate authorities, logs and timestamp authorities. It always
comes from a file, never from the network. Source: sigstore/protobuf-specs, sigstore_trustroot.proto, in its JSON form.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from msgspec import Meta, Struct, field

from gkm.api.errors import GKMError, Reason
from gkm.api.policies import is_pem
from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.lru import LRUCache
from gkm.images.manifest import decode
from gkm.images.signatures import keys
from gkm.images.signatures.bundles import LogId, RawBytes
from gkm.images.signatures.keys import MALFORMED, UNREADABLE, PublicKey, supported

MAX_CACHED = 1024
MAX_FINGERPRINTS = 8
MAX_ROOT_BYTES = 1 << 20
MEDIA_TYPE_PREFIX = "application/vnd.dev.sigstore.trustedroot"
_Time = Annotated[datetime, Meta(tz=True)]


class Period(Struct, frozen=True):
    """A validity period of a key or authority; None as an end means that the period has no end there."""

    start: _Time | None = None
    end: _Time | None = None

    def contains(self, when: datetime) -> bool:
        """Return whether a time is in the period, both ends included."""
        return (self.start is None or self.start <= when) and (self.end is None or when <= self.end)


@dataclass(frozen=True, slots=True)
class TrustedLog:
    """A trusted transparency log: its key, its ids (the id in the file and the SHA-256 of the key), and its URL."""

    key: PublicKey
    ids: frozenset[bytes]
    period: Period
    url: str = ""


@dataclass(frozen=True, slots=True)
class TrustedAuthority:
    """A certificate or timestamp authority: its chain from the signing certificate to the root."""

    certificates: tuple[x509.Certificate, ...]
    period: Period


@dataclass(frozen=True, slots=True)
class TrustedRoot:
    """The services that a policy trusts for keyless signatures and for the log entries of signatures by key."""

    logs: tuple[TrustedLog, ...]
    certificate_logs: tuple[TrustedLog, ...]
    authorities: tuple[TrustedAuthority, ...]
    timestamp_authorities: tuple[TrustedAuthority, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class TrustedRootFile:
    """A trusted root and its path. Two objects are never equal, so that an object can be a cache key."""

    path: str
    trusted: TrustedRoot


@dataclass(frozen=True, slots=True)
class AuthorityFile:
    """The certificate authorities in a PEM file, and its path."""

    path: str
    certificates: tuple[x509.Certificate, ...]


def key(key: str) -> PublicKey:
    """Return the public key that a policy names: PEM text, or the content of a PEM file.

    Raises:
        GKMError: SIGNATURE_INVALID.
    """
    return _key(key, None if is_pem(key) else _cache_stamp(key))


def root(path: str) -> TrustedRootFile:
    """Return the trusted root in a file.

    Raises:
        GKMError: SIGNATURE_INVALID.
    """
    return _ROOTS.get_or_create((path, _cache_stamp(path)), lambda: _read_root(path))


def authorities(path: str) -> AuthorityFile:
    """Return the certificate authorities in a PEM file.

    Raises:
        GKMError: SIGNATURE_INVALID.
    """
    return _read_authorities(path, _cache_stamp(path))


@lru_cache(MAX_CACHED)
def _read_authorities(path: str, _stamp: object) -> AuthorityFile:
    raw = keys.read_file(path, "file of certificate authorities", MAX_ROOT_BYTES)
    try:
        return AuthorityFile(path, tuple(x509.load_pem_x509_certificates(raw)))
    except MALFORMED as error:
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"{path!r} holds no PEM certificates",
            "name the file of the certificate authority, such as ca.crt of cert-manager",
        ) from error


@lru_cache(MAX_CACHED)
def _key(key: str, _stamp: object) -> PublicKey:
    return keys.load(key)


_ROOTS: LRUCache[tuple[str, object], TrustedRootFile] = LRUCache(MAX_CACHED)
"""One thread reads a root while others wait: each object has its own verifiers."""


def _read_root(path: str) -> TrustedRootFile:
    raw = keys.read_file(path, "trusted root", MAX_ROOT_BYTES)
    return TrustedRootFile(path, parse(raw, f"trusted root {path!r}"))


def fingerprint(paths: Iterable[str], prefix: bytes = b"") -> str:
    """Return the SHA-256 over `prefix` and the content of files, in hexadecimal.

    It covers the content, not times or inodes: when one file of a mounted ConfigMap changes, kubelet replaces the whole
    directory by one symbolic link. An unreadable file has a fixed value; verification reports the error.

    Raises:
        OSError: a file cannot be read now (files.PASSING).
    """
    names = tuple(paths)
    # Take the stamps before the content: a change in between causes one more read.
    return _fingerprint(names, prefix, tuple(map(_cache_stamp, names)))


@lru_cache(MAX_FINGERPRINTS)
def _fingerprint(paths: tuple[str, ...], prefix: bytes, _stamps: tuple[object, ...]) -> str:
    hasher = hashlib.sha256(prefix)
    for path in paths:
        try:
            hasher.update(files.read_bounded(Path(path).resolve()))
        except (OSError, UnreadableState, ValueError, RuntimeError) as error:
            if isinstance(error, OSError) and error.errno in files.PASSING:
                raise
            hasher.update(b"unreadable")
    return hasher.hexdigest()


def stamp(path: str) -> object:
    """Return a value that changes if the file changes; None if the file cannot be read."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _cache_stamp(path: str) -> object:
    """Return `stamp`; for an inaccessible file a value equal to no other, since it may appear before it is read."""
    return stamp(path) or object()


class _Key(Struct, rename="camel"):
    raw_bytes: bytes
    valid_for: Period = field(default_factory=Period)


class _Log(Struct, rename="camel"):
    public_key: _Key
    log_id: LogId | None = None
    base_url: str = ""


class _Chain(Struct):
    certificates: list[RawBytes]


class _Authority(Struct, rename="camel"):
    cert_chain: _Chain
    valid_for: Period = field(default_factory=Period)


class _Root(Struct, rename="camel"):
    media_type: str
    tlogs: list[_Log] = field(default_factory=list)
    certificate_authorities: list[_Authority] = field(default_factory=list)
    ctlogs: list[_Log] = field(default_factory=list)
    timestamp_authorities: list[_Authority] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.media_type.startswith(MEDIA_TYPE_PREFIX):
            raise ValueError(f"its mediaType is {self.media_type[:80]!r}")


def parse(raw: bytes, what: str) -> TrustedRoot:
    """Parse the content of a trusted_root.json; `what` names the file in errors.

    Raises:
        GKMError: SIGNATURE_INVALID.
    """
    try:
        root = decode(raw, _Root, what)
        return TrustedRoot(
            tuple(_logs(root.tlogs)),
            tuple(_logs(root.ctlogs)),
            tuple(_authorities(root.certificate_authorities)),
            tuple(_authorities(root.timestamp_authorities)),
        )
    except UNREADABLE as error:
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"{what} is no trusted root: {str(error)[:160]}",
            "`cosign trusted-root create` writes one, and Sigstore's own is in its TUF repository",
        ) from error


def find_log(logs: Sequence[TrustedLog], log_id: bytes) -> TrustedLog | None:
    """Return the trusted log with an id; None if no log has it."""
    return next((log for log in logs if log_id in log.ids), None)


def _logs(logs: Iterable[_Log]) -> Iterable[TrustedLog]:
    for log in logs:
        der = log.public_key.raw_bytes
        key = supported(serialization.load_der_public_key(der))
        if key is None:
            # Ignore a log whose kind of key is not supported; the other logs still count.
            continue
        stated = frozenset({log.log_id.key_id} if log.log_id else ())
        ids = stated | {hashlib.sha256(der).digest()}
        yield TrustedLog(key, ids, log.public_key.valid_for, log.base_url)


def _authorities(authorities: Iterable[_Authority]) -> Iterable[TrustedAuthority]:
    for authority in authorities:
        chain = (x509.load_der_x509_certificate(each.raw_bytes) for each in authority.cert_chain.certificates)
        yield TrustedAuthority(tuple(chain), authority.valid_for)
