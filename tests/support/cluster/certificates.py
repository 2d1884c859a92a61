"""Keys and X.509 certificates of one run of tests: in memory or in one directory, gone with it."""

import base64
import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Period(NamedTuple):
    """When a certificate is valid."""

    begins: dt.datetime
    ends: dt.datetime

    @classmethod
    def around(cls, moment: dt.datetime, before: dt.timedelta, after: dt.timedelta) -> "Period":
        return cls(moment - before, moment + after)


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
    def create(
        cls,
        name: str = "gkm testbed",
        parent: "Authority | None" = None,
        purpose: x509.ObjectIdentifier | None = None,
        *,
        period: Period | None = None,
        ca: bool = True,
    ) -> "Authority":
        """Make a root; with a parent an intermediate for a purpose, or (not `ca`) an end certificate for it."""
        key = new_key()
        subject = _common_name(name)
        issuer, signer = (parent.certificate.subject, parent.key) if parent else (subject, key)
        builder = _builder(subject, key.public_key(), issuer, signer.public_key(), period)
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        # Python's ssl in strict mode refuses an authority that does not say it may sign certificates.
        builder = builder.add_extension(key_usage(ca=ca), critical=True)
        if purpose:
            # RFC 3161 demands that the purpose of a timestamp's certificate is critical.
            stamping = purpose == ExtendedKeyUsageOID.TIME_STAMPING and not ca
            builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=stamping)
        return cls(builder.sign(signer, hashes.SHA256()), key)

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

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
        return self._issue(
            _common_name(hosts[0]), ExtendedKeyUsageOID.SERVER_AUTH, [_general_name(host) for host in hosts]
        )

    def builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, period: Period) -> x509.CertificateBuilder:
        """Return a certificate to be signed, with both key identifiers and no other extension."""
        return _builder(subject, key, self.certificate.subject, self.key.public_key(), period)

    def sign(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(self.key, hashes.SHA256())

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: Sequence[x509.GeneralName]
    ) -> Certificate:
        key = new_key()
        builder = _builder(subject, key.public_key(), self.certificate.subject, self.key.public_key(), None)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Certificate(self.sign(builder).public_bytes(serialization.Encoding.PEM), private_pem(key))


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the key as unencrypted PKCS#8."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_pem(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return the public key as SubjectPublicKeyInfo, the form cosign and Kubernetes read."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def public_der(key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) -> bytes:
    """Return the public key as SubjectPublicKeyInfo, the form whose hash names a log."""
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def key_usage(*, ca: bool) -> x509.KeyUsage:
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


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePublicKey,
    period: Period | None,
) -> x509.CertificateBuilder:
    begins, ends = period or Period.around(dt.datetime.now(dt.UTC), dt.timedelta(minutes=5), dt.timedelta(days=2))
    return (
        x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
