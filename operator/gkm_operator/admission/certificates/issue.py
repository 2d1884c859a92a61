"""Issues a CA and a server certificate of its own, for clusters without cert-manager. Does not schedule renewals."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gkm_operator.webhooks import CLOCKS_DIFFER

VALID = timedelta(days=90)
AUTHORITY, KEY, CERTIFICATE = "ca.crt", "tls.key", "tls.crt"
"""The names of the files, in the order in which they are written."""

_AUTHORITY, _SERVER = "gkm-operator CA", "gkm-operator"


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """A server certificate and its key, and the CA that the API server must trust; all PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    authority: bytes
    made: datetime
    ends: datetime

    @property
    def begins(self) -> datetime:
        """Return the start of the validity."""
        return self.made - CLOCKS_DIFFER

    def is_valid(self, now: datetime) -> bool:
        """Return whether a client whose clock shows `now` accepts the certificate."""
        return self.begins <= now < self.ends


def make(names: Sequence[str], now: datetime, valid: timedelta = VALID) -> CertificatePair:
    """Issue a CA and a server certificate for DNS names and IP addresses.

    The CA's key is never written: every certificate has a CA of its own.
    """
    made = now.replace(microsecond=0)  # X.509 has whole seconds only
    ends = made + valid
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _builder(_AUTHORITY, authority_key.public_key(), made, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(_SERVER, key.public_key(), made, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        # All our CAs have the same subject: this extension tells a client which one issued the certificate.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return CertificatePair(certificate.public_bytes(pem), secret, authority.public_bytes(pem), made, ends)


def write(directory: Path, pair: CertificatePair) -> None:
    """Write the three files, each atomically.

    Between the last two steps the files do not match: a server that reads them then keeps the pair in memory
    (https.certificate.ServerCertificate). Leftovers of a crash are never read: a starting process writes all three
    anew.

    Raises:
        OSError: the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, pem in ((AUTHORITY, pair.authority), (KEY, pair.key), (CERTIFICATE, pair.certificate)):
        _replace(directory / name, pem)


def _replace(path: Path, pem: bytes) -> None:
    # A fixed name: the next write removes the leftover of a crash, so leftovers do not accumulate.
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600, exist_ok=False)
    temporary.write_bytes(pem)
    temporary.rename(path)


def _builder(name: str, key: ec.EllipticCurvePublicKey, made: datetime, ends: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(_AUTHORITY))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(made - CLOCKS_DIFFER)
        .not_valid_after(ends)
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
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


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
