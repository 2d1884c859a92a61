"""A certificate authority like Fulcio, with the certificate log that stamps what it issues."""

import datetime as dt
import hashlib
import struct
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.asn1 import encode_der
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from support.cluster.certificates import Authority, Period, key_usage, new_key, public_der

SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
ISSUER_V1 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
ISSUER_V2 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
YEARS = Period(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2034, 1, 1, tzinfo=dt.UTC))
"""Of the authorities, so that certificates of any moment of a test are signed by a valid one."""
BEFORE, LIFE = dt.timedelta(minutes=1), dt.timedelta(minutes=10)


def authority(
    name: str, purpose: x509.ObjectIdentifier, parent: Authority | None = None, *, ca: bool = True
) -> Authority:
    """Make a root, an intermediate or (not `ca`) an end certificate of Sigstore; roots have no purpose."""
    return Authority.create(name, parent, purpose if parent else None, period=YEARS, ca=ca)


@dataclass(frozen=True)
class Fulcio:
    """Issues certificates for minutes; `log_key` stamps them."""

    root: Authority
    intermediate: Authority
    log_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)

    @classmethod
    def create(cls) -> "Fulcio":
        root = authority("testbed root", ExtendedKeyUsageOID.CODE_SIGNING)
        return cls(root, authority("testbed fulcio", ExtendedKeyUsageOID.CODE_SIGNING, root))

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
            self.intermediate.builder(x509.Name([]), key, Period.around(at, BEFORE, LIFE))
            .add_extension(key_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .add_extension(x509.UnrecognizedExtension(ISSUER_V1, issuer.encode()), critical=False)
            .add_extension(x509.UnrecognizedExtension(ISSUER_V2, encode_der(issuer)), critical=False)
        )
        if stamped:
            # A precertificate is the certificate without the stamps: what is signed first is what is stamped.
            tbs = self.intermediate.sign(builder).tbs_certificate_bytes
            stamp = self._stamp(tbs, at, log_key or self.log_key)
            listed = struct.pack("!HH", len(stamp) + 2, len(stamp)) + stamp
            builder = builder.add_extension(x509.UnrecognizedExtension(SCT_LIST, encode_der(listed)), critical=False)
        return self.intermediate.sign(builder)

    def _stamp(self, tbs: bytes, at: dt.datetime, key: ec.EllipticCurvePrivateKey) -> bytes:
        """Return a serialized SCT of a precertificate (RFC 6962, 3.2)."""
        issuer = hashlib.sha256(public_der(self.intermediate.key.public_key())).digest()
        milliseconds = int(at.timestamp() * 1000)
        signed = struct.pack("!BBQH", 0, 0, milliseconds, 1) + issuer + len(tbs).to_bytes(3, "big") + tbs + b"\0\0"
        signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
        log_id = hashlib.sha256(public_der(key.public_key())).digest()
        head = struct.pack("!B32sQH", 0, log_id, milliseconds, 0)
        return head + struct.pack("!BBH", 4, 3, len(signature)) + signature
