"""A certificate authority like Fulcio, with the certificate log that stamps what it issues."""

import datetime as dt
import hashlib
import struct
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from support.sigstore.der import octets, text

SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
ISSUER_V1 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
ISSUER_V2 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
LIFE = dt.timedelta(minutes=10)
EPOCH = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def spki(key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class CA:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str, purpose: x509.ObjectIdentifier, parent: "CA | None" = None, *, ca: bool = True) -> "CA":
        """Make a root, an intermediate, or (not `ca`) an end certificate for `purpose`."""
        key = new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = parent.certificate.subject if parent else subject
        signer = parent.key if parent else key
        builder = (
            x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(EPOCH)
            .not_valid_after(EPOCH + dt.timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(usage(ca=ca), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if parent:
            # RFC 3161 demands that the purpose of a timestamp's certificate is critical.
            stamping = purpose == ExtendedKeyUsageOID.TIME_STAMPING and not ca
            builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=stamping)
        return cls(builder.sign(signer, hashes.SHA256()), key)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)


@dataclass(frozen=True)
class Fulcio:
    """Issues certificates for minutes; `log_key` stamps them."""

    root: CA
    intermediate: CA
    log_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)

    @classmethod
    def create(cls) -> "Fulcio":
        root = CA.create("testbed root", ExtendedKeyUsageOID.CODE_SIGNING)
        return cls(root, CA.create("testbed fulcio", ExtendedKeyUsageOID.CODE_SIGNING, root))

    def issue(
        self,
        key: ec.EllipticCurvePublicKey,
        names: list[x509.GeneralName],
        issuer: str,
        *,
        at: dt.datetime | None = None,
        purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.CODE_SIGNING,
        log_key: ec.EllipticCurvePrivateKey | None = None,
        stamped: bool = True,
    ) -> x509.Certificate:
        """Return a certificate as Fulcio issues them, good for ten minutes around `at`."""
        at = (at or dt.datetime.now(dt.UTC)).replace(microsecond=0)
        builder = (
            x509.CertificateBuilder(
                self.intermediate.certificate.subject, x509.Name([]), key, x509.random_serial_number()
            )
            .not_valid_before(at - dt.timedelta(minutes=1))
            .not_valid_after(at + LIFE)
            .add_extension(usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.intermediate.key.public_key()), critical=False
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .add_extension(x509.UnrecognizedExtension(ISSUER_V1, issuer.encode()), critical=False)
            .add_extension(x509.UnrecognizedExtension(ISSUER_V2, text(issuer)), critical=False)
        )
        if stamped:
            # A precertificate is the certificate without the stamps: what is signed first is what is stamped.
            tbs = builder.sign(self.intermediate.key, hashes.SHA256()).tbs_certificate_bytes
            stamp = self._stamp(tbs, at, log_key or self.log_key)
            listed = struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp
            builder = builder.add_extension(x509.UnrecognizedExtension(SCT_LIST, octets(listed)), critical=False)
        return builder.sign(self.intermediate.key, hashes.SHA256())

    def _stamp(self, tbs: bytes, at: dt.datetime, key: ec.EllipticCurvePrivateKey) -> bytes:
        """Return a serialized SCT of a precertificate (RFC 6962, 3.2)."""
        issuer = hashlib.sha256(spki(self.intermediate.key.public_key())).digest()
        milliseconds = int(at.timestamp() * 1000)
        signed = struct.pack("!BBQH", 0, 0, milliseconds, 1) + issuer + len(tbs).to_bytes(3, "big") + tbs + b"\0\0"
        signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
        log_id = hashlib.sha256(spki(key.public_key())).digest()
        head = struct.pack("!B32sQH", 0, log_id, milliseconds, 0)
        return head + struct.pack("!BBH", 4, 3, len(signature)) + signature


def usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
