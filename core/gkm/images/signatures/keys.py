"""Public keys and verification with them: ECDSA (P-256, P-384, P-521), RSA and Ed25519, as cosign uses them."""

import base64
import hashlib
import os
import re
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from gkm.api.errors import GKMError, Reason
from gkm.api.policies import is_pem

SupportedKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey
MALFORMED: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.ExtensionNotFound,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""The exceptions that `cryptography` raises for crafted keys and certificates; not all are a ValueError."""
UNREADABLE: tuple[type[Exception], ...] = (GKMError, *MALFORMED)
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
MAX_KEY_BYTES = 64 << 10
KMS_SCHEMES = ("awskms", "gcpkms", "azurekms", "hashivault", "k8s", "pkcs11", "gitlab", "github")
"""URI schemes of keys in key management services; GKM has no credentials for such services."""
_URI = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):")
"""A URI may hold a password or PIN (RFC 7512, 2.4), so messages name its scheme only."""
_CURVE_HASHES: dict[str, tuple[hashes.HashAlgorithm, ...]] = {
    "secp256r1": (hashes.SHA256(),),
    "secp384r1": (hashes.SHA384(), hashes.SHA256()),
    "secp521r1": (hashes.SHA512(), hashes.SHA256()),
}


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key; `key_id` is cosign's hint for it, the base64 of the SHA-256 of its DER form."""

    key: SupportedKey
    key_id: str

    def __str__(self) -> str:
        """Return the first 12 characters of the key's id."""
        return f"{self.key_id[:12]}…"

    @property
    def der(self) -> bytes:
        """Return the public key as DER (SubjectPublicKeyInfo)."""
        return der(self.key)

    @property
    def pem(self) -> bytes:
        """Return the public key as PEM (SubjectPublicKeyInfo)."""
        return self.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Return whether this key made the signature over `data`.

        cosign uses SHA-256 for every RSA key and for P-256. Sigstore's algorithm registry pairs larger curves with
        larger hashes, but older versions of cosign used SHA-256 for them too. So both hashes are accepted for those
        curves.
        """
        curve = self.key.curve.name if isinstance(self.key, ec.EllipticCurvePublicKey) else ""
        algorithms = _CURVE_HASHES.get(curve, (hashes.SHA256(),))
        return any(self._verifies(signature, data, algorithm) for algorithm in algorithms)

    def _verifies(self, signature: bytes, data: bytes, algorithm: hashes.HashAlgorithm) -> bool:
        try:
            if isinstance(self.key, ec.EllipticCurvePublicKey):
                self.key.verify(signature, data, ec.ECDSA(algorithm))
            elif isinstance(self.key, rsa.RSAPublicKey):
                self.key.verify(signature, data, padding.PKCS1v15(), algorithm)
            else:
                self.key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


def load(key: str) -> PublicKey:
    """Return the key in a PEM text, or in the PEM file at a path.

    Raises:
        GKMError: SIGNATURE_INVALID if the text or file has no usable public key.
    """
    if is_pem(key):
        pem, what = key.encode(), "the key in the policy"
    else:
        pem, what = read_file(key, "public key", MAX_KEY_BYTES), f"public key {key!r}"
    try:
        loaded = serialization.load_pem_public_key(pem)
    except MALFORMED as error:
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"{what} is no PEM public key",
            "`cosign generate-key-pair` writes one to cosign.pub",
        ) from error
    usable = supported(loaded)
    if usable is None:
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"{what} is of a kind that is not trusted",
            f"use ECDSA P-256, P-384 or P-521, Ed25519, or RSA of at least {MIN_RSA_BITS} bits",
        )
    return usable


def read_file(path: str, what: str, limit: int) -> bytes:
    """Return the content of a key or certificate file; errors call it `what`.

    Raises:
        GKMError: SIGNATURE_INVALID if the file is unreadable or longer than `limit` bytes.
    """
    scheme = uri[1].lower() if (uri := _URI.match(path)) else ""
    if scheme in KMS_SCHEMES:
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"the {what} is in a key management service ({scheme}), which GKM cannot use",
            "name a file: `cosign public-key --key URI` writes the public key; sign there with cosign",
        )
    try:
        # The path may name a device or a FIFO, which must not block a thread or fill the memory.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            raw = file.read(limit + 1) or b""
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no path"
        named = f"{scheme}:…" if scheme else path
        raise GKMError(
            Reason.SIGNATURE_INVALID, f"{what} {named!r} cannot be read: {why}", "name a readable file"
        ) from error
    if len(raw) > limit:
        raise GKMError(Reason.SIGNATURE_INVALID, f"{what} {path!r} is longer than {limit} bytes")
    return raw


def supported(key: object) -> PublicKey | None:
    """Return a key of `cryptography` as a PublicKey; None if its kind, curve or length is not supported."""
    if (
        isinstance(key, ed25519.Ed25519PublicKey)
        or (isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVE_HASHES)
        or (isinstance(key, rsa.RSAPublicKey) and MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS)
    ):
        return PublicKey(key, base64.b64encode(hashlib.sha256(der(key)).digest()).decode())
    return None


def der(key: PublicKeyTypes) -> bytes:
    """Return a public key as DER (SubjectPublicKeyInfo)."""
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
