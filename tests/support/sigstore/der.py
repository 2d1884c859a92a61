"""What cryptography does not write: a timestamp token (RFC 3161) in a CMS envelope (RFC 5652), in DER."""

import datetime as dt
import hashlib
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.asn1 import GeneralizedTime, encode_der
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

SHA256 = "2.16.840.1.101.3.4.2.1"
ECDSA_SHA256 = "1.2.840.10045.4.3.2"
SIGNED_DATA = "1.2.840.113549.1.7.2"
TST_INFO = "1.2.840.113549.1.9.16.1.4"
CONTENT_TYPE, MESSAGE_DIGEST = "1.2.840.113549.1.9.3", "1.2.840.113549.1.9.4"
SIGNING_CERTIFICATE = "1.2.840.113549.1.9.16.2.47"


def element(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    if len(body) < 0x80:
        return bytes([tag, len(body)]) + body
    length = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def sequence(*parts: bytes) -> bytes:
    return element(0x30, *parts)


def set_of(parts: Iterable[bytes], tag: int = 0x31) -> bytes:
    return element(tag, *sorted(parts))


def oid(dotted: str) -> bytes:
    return encode_der(x509.ObjectIdentifier(dotted))


def timestamp(
    data: bytes, at: dt.datetime, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, serial: int = 1
) -> bytes:
    """Return a TimeStampResp that says: `data` was there at `at`."""
    sha256 = sequence(oid(SHA256))
    info = sequence(
        encode_der(1),
        oid("1.3.6.1.4.1.57264.2"),
        sequence(sha256, encode_der(hashlib.sha256(data).digest())),
        encode_der(serial),
        encode_der(GeneralizedTime(at.replace(microsecond=0))),
    )
    der = certificate.public_bytes(serialization.Encoding.DER)
    attributes = [
        sequence(oid(CONTENT_TYPE), set_of([oid(TST_INFO)])),
        sequence(oid(MESSAGE_DIGEST), set_of([encode_der(hashlib.sha256(info).digest())])),
        sequence(
            oid(SIGNING_CERTIFICATE), set_of([sequence(sequence(sequence(encode_der(hashlib.sha256(der).digest()))))])
        ),
    ]
    signer = sequence(
        encode_der(1),
        sequence(certificate.issuer.public_bytes(), encode_der(certificate.serial_number)),
        sha256,
        set_of(attributes, 0xA0),
        sequence(oid(ECDSA_SHA256)),
        encode_der(key.sign(set_of(attributes), ec.ECDSA(hashes.SHA256()))),
    )
    signed = sequence(
        encode_der(3),
        set_of([sha256]),
        sequence(oid(TST_INFO), element(0xA0, encode_der(info))),
        element(0xA0, der),
        set_of([signer]),
    )
    return sequence(sequence(encode_der(0)), sequence(oid(SIGNED_DATA), element(0xA0, signed)))
