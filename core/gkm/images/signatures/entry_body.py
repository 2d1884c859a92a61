"""Comparison of a log entry's body with the signature that the entry came with.

A log entry is no proof for a signature that it does not name: until CVE-2026-22703, cosign accepted a forged
signature beside a valid entry of another signature. So the digest, the signature and the verifier in the body must all
belong to this signature. Supported bodies: hashedrekord and dsse 0.0.1 (Rekor 1), hashedrekord and dsse 0.0.2 (Rekor 2;
sigstore/rekor-tiles).
"""

import hashlib
from collections.abc import Callable

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from msgspec import Raw, Struct, field

from gkm.images.manifest import decode
from gkm.images.signatures import keys
from gkm.images.signatures.bundles import LogEntry, RawBytes
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.keys import UNREADABLE
from gkm.images.signatures.signature_formats import Signature

_HASHES = {
    "sha256": hashlib.sha256,
    "sha384": hashlib.sha384,
    "sha512": hashlib.sha512,
    "SHA2_256": hashlib.sha256,
    "SHA2_384": hashlib.sha384,
    "SHA2_512": hashlib.sha512,
}


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


def check(entry: LogEntry, signature: Signature, verifier: bytes) -> None:
    """Check that the body of a log entry describes exactly this signature.

    `verifier` is the DER form of the certificate, or of the public key if the signature has no certificate.

    Raises:
        Untrusted: the body describes another signature, or has an unknown kind.
    """
    try:
        body = decode(entry.canonicalized_body, _Body, "log entry")
        matches = _MATCHERS.get((body.kind, body.api_version))
        if matches is None:
            raise Untrusted(f"has a log entry of the unknown kind {body.kind[:40]!r} {body.api_version[:20]!r}")
        if not matches(bytes(body.spec), signature, verifier):
            raise Untrusted("has a log entry that is about another signature")
    except UNREADABLE as error:
        raise Untrusted("has a log entry that cannot be read") from error


def _matches_hashedrekord(raw: bytes, signature: Signature, verifier: bytes) -> bool:
    spec = decode(raw, _Hashed, "log entry")
    return (
        bytes.fromhex(spec.data.hash.value) == _digest(spec.data.hash.algorithm, signature.signed)
        and spec.signature.content == signature.signature
        and _der(spec.signature.public_key.content) == verifier
    )


def _matches_dsse(raw: bytes, signature: Signature, verifier: bytes) -> bool:
    spec = decode(raw, _DSSE, "log entry")
    return (
        signature.payload is not None
        and bytes.fromhex(spec.payload_hash.value) == _digest(spec.payload_hash.algorithm, signature.payload)
        and len(spec.signatures) == 1
        and spec.signatures[0].signature == signature.signature
        and _der(spec.signatures[0].verifier) == verifier
    )


def _matches_rekor2(raw: bytes, signature: Signature, verifier: bytes) -> bool:
    spec = decode(raw, _Spec2, "log entry")
    if spec.hashed is not None and spec.dsse is None:
        digest, data, signatures = spec.hashed.data, signature.signed, [spec.hashed.signature]
    elif spec.dsse is not None and spec.hashed is None and signature.payload is not None:
        digest, data, signatures = spec.dsse.payload_hash, signature.payload, spec.dsse.signatures
    else:
        return False
    if len(signatures) != 1 or digest.digest != _digest(digest.algorithm, data):
        return False
    logged = signatures[0].verifier
    raw_verifiers = [part.raw_bytes for part in (logged.public_key, logged.x509_certificate) if part is not None]
    return signatures[0].content == signature.signature and raw_verifiers == [verifier]


_MATCHERS: dict[tuple[str, str], Callable[[bytes, Signature, bytes], bool]] = {
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
