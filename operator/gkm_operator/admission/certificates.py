"""A certificate of our own making, for clusters without cert-manager."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from gkm.hoststate import files

VALID = timedelta(days=3650)
"""A pod makes a new one with every start, and never while it runs: behind failurePolicy Fail, one that ran out would
refuse every write of our kinds. So it outlives any process; its key never leaves the pod."""

_BACKDATED = timedelta(minutes=10)  # clocks differ


@dataclass(frozen=True, slots=True)
class Issued:
    """Where the files are, and the CA that the API server must trust."""

    certificate: Path
    key: Path
    authority: Path
    ca_bundle: bytes


def issue(directory: Path, names: Sequence[str]) -> Issued:
    """Make a CA and a server certificate for DNS names and IP addresses; write tls.crt, tls.key and ca.crt.

    The CA's key is never written: who wants another certificate makes another CA.

    Raises:
        OSError: the directory cannot be written.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _builder("gkm-operator CA", authority_key.public_key(), "gkm-operator CA")
    ca_certificate = (
        authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder("gkm-operator", key.public_key(), "gkm-operator CA")
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    ca_pem = ca_certificate.public_bytes(serialization.Encoding.PEM)
    issued = Issued(directory / "tls.crt", directory / "tls.key", directory / "ca.crt", ca_pem)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write_secret(issued.key, key)
    files.replace(issued.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    files.replace(issued.authority, ca_pem)
    return issued


def _write_secret(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(pem)


def _builder(name: str, key: ec.EllipticCurvePublicKey, issuer: str) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + VALID)
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
