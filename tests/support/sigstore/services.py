"""Sigstore in one process: Fulcio, both Rekors and a timestamp authority, with the trusted root that names them."""

import datetime as dt
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from support.cluster.certificates import Authority, public_der
from support.sigstore.der import timestamp
from support.sigstore.fulcio import Fulcio, authority
from support.sigstore.rekor import Rekor, b64

START = {"start": "2024-01-01T00:00:00Z"}


@dataclass(frozen=True)
class TSA:
    """A timestamp authority."""

    root: Authority
    leaf: Authority

    @classmethod
    def create(cls) -> "TSA":
        root = authority("testbed tsa root", ExtendedKeyUsageOID.TIME_STAMPING)
        return cls(root, authority("testbed tsa", ExtendedKeyUsageOID.TIME_STAMPING, root, ca=False))

    def stamp(self, data: bytes, at: dt.datetime | None = None) -> bytes:
        return timestamp(data, at or dt.datetime.now(dt.UTC), self.leaf.certificate, self.leaf.key)


@dataclass(frozen=True)
class Sigstore:
    """One Sigstore; another one has the same names and other keys."""

    fulcio: Fulcio = field(default_factory=Fulcio.create)
    rekor: Rekor = field(default_factory=Rekor.first)
    rekor2: Rekor = field(default_factory=Rekor.second)
    tsa: TSA = field(default_factory=TSA.create)

    def trusted_root(self) -> dict[str, Any]:
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [_log(rekor) for rekor in (self.rekor, self.rekor2)],
            "certificateAuthorities": [
                _authority("fulcio.testbed", self.fulcio.intermediate, self.fulcio.root),
            ],
            "ctlogs": [_key_of("ct.testbed", self.fulcio.log_key)],
            "timestampAuthorities": [_authority("tsa.testbed", self.tsa.leaf, self.tsa.root)],
        }

    def write_trusted_root(self, directory: Path) -> Path:
        path = directory / "testbed-trusted-root.json"
        path.write_text(json.dumps(self.trusted_root()))
        return path


def _authority(host: str, *chain: Authority) -> dict[str, Any]:
    return {
        "subject": {"organization": "testbed", "commonName": host},
        "uri": f"https://{host}",
        "certChain": {"certificates": [{"rawBytes": b64(ca.der)} for ca in chain]},
        "validFor": START,
    }


def _key_of(host: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    return _log(Rekor(key, host))


def _log(rekor: Rekor) -> dict[str, Any]:
    return {
        "baseUrl": f"https://{rekor.host}",
        "hashAlgorithm": "SHA2_256",
        "publicKey": {
            "rawBytes": b64(public_der(rekor.key.public_key())),
            "keyDetails": "PKIX_ECDSA_P256_SHA_256" if rekor.version == 1 else "PKIX_ED25519",
            "validFor": START,
        },
        "logId": {"keyId": b64(rekor.log_id)},
    }
