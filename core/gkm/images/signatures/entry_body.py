"""Comparison of a log entry's body with the signature that the entry came with.

A log entry proves nothing about a signature that it does not name: until CVE-2026-22703, cosign accepted a forged
signature beside a valid entry of another signature. So the digest, the signature and the verifier in the body must all
be those of this signature. Supported bodies: hashedrekord and dsse 0.0.1 (Rekor 1), hashedrekord and dsse 0.0.2
(Rekor 2; sigstore/rekor-tiles).
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from msgspec import Raw, Struct, field

from gkm.images.manifest import decode
from gkm.images.signatures import keys
from gkm.images.signatures.bundles import RawBytes
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.keys import UNREADABLE

_HASHES = {
    "sha256": hashlib.sha256,
    "sha384": hashlib.sha384,
    "sha512": hashlib.sha512,
    "SHA2_256": hashlib.sha256,
    "SHA2_384": hashlib.sha384,
    "SHA2_512": hashlib.sha512,
}


@dataclass(frozen=True, slots=True)
class ExpectedEntry:
    """The content that an entry's body must have.

    `payload` is the payload of a DSSE envelope, of which `signed` is the encoding; None without an envelope. `verifier`
    is the DER form of the certificate, or of the public key if the signature has no certificate.
    """

    signed: bytes
    signature: bytes
    verifier: bytes
    payload: bytes | None = None


class _Body(Struct, rename="camel"):
    kind: str
    api_version: str
    spec: Raw = Raw(b"")


class _Hash(Struct):
    algorithm: str
    value: str


class _Content(Struct):
    content: bytes


class _HashedSignature(Struct, rename="camel"):
    content: bytes
    public_key: _Content


class _HashedData(Struct):
    hash: _Hash


class _Hashed(Struct):
    data: _HashedData
    signature: _HashedSignature


class _DSSESignature(Struct):
    signature: bytes
    verifier: bytes


class _DSSE(Struct, rename="camel"):
    payload_hash: _Hash
    signatures: list[_DSSESignature]


class _Verifier2(Struct, rename="camel"):
    public_key: RawBytes | None = None
    x509_certificate: RawBytes | None = None


class _Signature2(Struct):
    content: bytes
    verifier: _Verifier2


class _Digest2(Struct):
    algorithm: str
    digest: bytes


class _Hashed2(Struct):
    data: _Digest2
    signature: _Signature2


class _DSSE2(Struct, rename="camel"):
    payload_hash: _Digest2
    signatures: list[_Signature2]


class _Spec2(Struct):
    hashed: _Hashed2 | None = field(default=None, name="hashedRekordV002")
    dsse: _DSSE2 | None = field(default=None, name="dsseV002")


def check(body: bytes, expected: ExpectedEntry) -> None:
    """Check that the body of an entry describes exactly this signature.

    Raises:
        Untrusted: the body describes another signature, or has an unknown kind.
    """
    try:
        entry = decode(body, _Body, "log entry")
        matches = _MATCHERS.get((entry.kind, entry.api_version))
        if matches is None:
            raise Untrusted(f"has a log entry of the unknown kind {entry.kind[:40]!r} {entry.api_version[:20]!r}")
        if not matches(bytes(entry.spec), expected):
            raise Untrusted("has a log entry that is about another signature")
    except UNREADABLE as error:
        raise Untrusted("has a log entry that cannot be read") from error


def _matches_hashedrekord(raw: bytes, expected: ExpectedEntry) -> bool:
    spec = decode(raw, _Hashed, "log entry")
    return (
        bytes.fromhex(spec.data.hash.value) == _digest(spec.data.hash.algorithm, expected.signed)
        and spec.signature.content == expected.signature
        and _der(spec.signature.public_key.content) == expected.verifier
    )


def _matches_dsse(raw: bytes, expected: ExpectedEntry) -> bool:
    spec = decode(raw, _DSSE, "log entry")
    return (
        expected.payload is not None
        and bytes.fromhex(spec.payload_hash.value) == _digest(spec.payload_hash.algorithm, expected.payload)
        and len(spec.signatures) == 1
        and spec.signatures[0].signature == expected.signature
        and _der(spec.signatures[0].verifier) == expected.verifier
    )


def _matches_rekor2(raw: bytes, expected: ExpectedEntry) -> bool:
    spec = decode(raw, _Spec2, "log entry")
    if spec.hashed is not None and spec.dsse is None:
        return _matches_signature2(spec.hashed.data, expected.signed, [spec.hashed.signature], expected)
    if spec.dsse is not None and spec.hashed is None and expected.payload is not None:
        return _matches_signature2(spec.dsse.payload_hash, expected.payload, spec.dsse.signatures, expected)
    return False


def _matches_signature2(digest: _Digest2, data: bytes, signatures: list[_Signature2], expected: ExpectedEntry) -> bool:
    if len(signatures) != 1 or digest.digest != _digest(digest.algorithm, data):
        return False
    verifier = signatures[0].verifier
    raw = [part.raw_bytes for part in (verifier.public_key, verifier.x509_certificate) if part is not None]
    return signatures[0].content == expected.signature and raw == [expected.verifier]


_MATCHERS: dict[tuple[str, str], Callable[[bytes, ExpectedEntry], bool]] = {
    ("hashedrekord", "0.0.1"): _matches_hashedrekord,
    ("dsse", "0.0.1"): _matches_dsse,
    ("hashedrekord", "0.0.2"): _matches_rekor2,
    ("dsse", "0.0.2"): _matches_rekor2,
}


def _digest(algorithm: str, data: bytes) -> bytes:
    return _HASHES[algorithm](data).digest() if algorithm in _HASHES else b"unknown"


def _der(pem: bytes) -> bytes:
    if b"CERTIFICATE" in pem[:40]:
        return x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    return keys.der(serialization.load_pem_public_key(pem))
