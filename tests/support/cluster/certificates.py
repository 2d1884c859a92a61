"""A certificate authority for one run: keys in memory or in one directory, gone with it."""

import base64
import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = dt.timedelta(days=2)


@dataclass(frozen=True)
class Certificate:
    """A key and its certificate, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write `name`.crt and `name`.key and return their paths."""
        directory.mkdir(parents=True, exist_ok=True)
        paths = directory / f"{name}.crt", directory / f"{name}.key"
        paths[0].write_bytes(self.certificate)
        paths[1].touch(mode=0o600)
        paths[1].write_bytes(self.key)
        return paths


@dataclass(frozen=True)
class Authority:
    """Signs what one testbed needs and nothing else trusts."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str = "gkm testbed") -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        # Python's ssl in strict mode refuses an authority that does not say it may sign certificates.
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def base64(self) -> str:
        """The certificate as a webhook's caBundle or a kubeconfig holds it."""
        return base64.b64encode(self.pem).decode()

    def client(self, user: str, groups: Sequence[str] = ()) -> Certificate:
        """Return a client certificate as Kubernetes reads it: CN is the user, each O a group."""
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def server(self, hosts: Sequence[str]) -> Certificate:
        """Return a serving certificate for names and IP addresses."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        return self._issue(subject, ExtendedKeyUsageOID.SERVER_AUTH, [_general_name(host) for host in hosts])

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: Sequence[x509.GeneralName]
    ) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self.certificate.subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self.key, hashes.SHA256())
        return Certificate(signed.public_bytes(serialization.Encoding.PEM), private_pem(key))


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the key as unencrypted PKCS#8."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return the public key as SubjectPublicKeyInfo, the form cosign and Kubernetes read."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + LIFE)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
