"""Just enough DER to write what cryptography does not: a timestamp token (RFC 3161) in a CMS envelope (RFC 5652)."""

import datetime as dt
import hashlib
from collections.abc import Iterable

from cryptography import x509
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


def integer(value: int) -> bytes:
    return element(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def octets(data: bytes) -> bytes:
    return element(0x04, data)


def text(value: str) -> bytes:
    return element(0x0C, value.encode())


def oid(dotted: str) -> bytes:
    first, second, *rest = (int(part) for part in dotted.split("."))
    encoded = bytes([first * 40 + second])
    for number in rest:
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        encoded += bytes(reversed(groups))
    return element(0x06, encoded)


def timestamp(
    data: bytes, at: dt.datetime, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, serial: int = 1
) -> bytes:
    """Return a TimeStampResp that says: `data` was there at `at`."""
    sha256 = sequence(oid(SHA256))
    info = sequence(
        integer(1),
        oid("1.3.6.1.4.1.57264.2"),
        sequence(sha256, octets(hashlib.sha256(data).digest())),
        integer(serial),
        element(0x18, at.strftime("%Y%m%d%H%M%SZ").encode()),
    )
    der = certificate.public_bytes(serialization.Encoding.DER)
    attributes = [
        sequence(oid(CONTENT_TYPE), set_of([oid(TST_INFO)])),
        sequence(oid(MESSAGE_DIGEST), set_of([octets(hashlib.sha256(info).digest())])),
        sequence(
            oid(SIGNING_CERTIFICATE), set_of([sequence(sequence(sequence(octets(hashlib.sha256(der).digest()))))])
        ),
    ]
    signer = sequence(
        integer(1),
        sequence(certificate.issuer.public_bytes(), integer(certificate.serial_number)),
        sha256,
        set_of(attributes, 0xA0),
        sequence(oid(ECDSA_SHA256)),
        octets(key.sign(set_of(attributes), ec.ECDSA(hashes.SHA256()))),
    )
    signed = sequence(
        integer(3),
        set_of([sha256]),
        sequence(oid(TST_INFO), element(0xA0, octets(info))),
        element(0xA0, der),
        set_of([signer]),
    )
    return sequence(sequence(integer(0)), sequence(oid(SIGNED_DATA), element(0xA0, signed)))
