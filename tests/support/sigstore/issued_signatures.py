"""Signatures by a key whose certificate an authority issued, as cosign writes them with --certificate-chain.

KServe signs its kernel caches in this form: the legacy tag, the leaf and its chain in annotations, and no log.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from support.cluster.certificates import Authority, Period, key_usage, new_key, private_pem
from support.sigstore.key_signatures import SIGNATURE_ANNOTATION, SigningKey

SPIFFE = "spiffe://kserve/kernelcache-signer"


@dataclass(frozen=True)
class Issued:
    """A key, its certificate, and the certificates between it and a root."""

    key: SigningKey
    certificate: x509.Certificate
    chain: tuple[Authority, ...] = ()

    @classmethod
    def by(
        cls,
        authority: Authority,
        *names: str,
        period: Period,
        purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.CODE_SIGNING,
        chain: Sequence[Authority] = (),
    ) -> "Issued":
        key = new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kc-signer")])
        stated = [x509.UniformResourceIdentifier(name) if ":" in name else x509.DNSName(name) for name in names]
        builder = (
            authority.builder(subject, key.public_key(), period)
            .add_extension(key_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectAlternativeName(stated), critical=False)
        )
        return cls(SigningKey(key), authority.sign(builder), tuple(chain))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return private_pem(self.key.private)

    @property
    def chain_pem(self) -> bytes:
        return b"".join(each.pem for each in self.chain)

    def legacy(self, payload: bytes) -> tuple[bytes, dict[str, str]]:
        """Return the payload and the annotations of its layer."""
        annotations = {
            SIGNATURE_ANNOTATION: base64.b64encode(self.key.sign(payload)).decode(),
            "dev.sigstore.cosign/certificate": self.pem.decode(),
        }
        chain = {"dev.sigstore.cosign/chain": self.chain_pem.decode()} if self.chain else {}
        return payload, annotations | chain
