"""Private keys to sign with: as cosign writes them, or PEM of OpenSSL's kinds (PKCS#8, SEC 1, PKCS#1).

Nothing here logs or shows a key or a password, and no error names more than the file.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from msgspec import Meta, Struct
from msgspec import field as named

from gkm.api.errors import GKMError, Reason
from gkm.images.manifest import decode
from gkm.images.signatures.keys import (
    MALFORMED,
    MAX_KEY_BYTES,
    MAX_RSA_BITS,
    MIN_RSA_BITS,
    PublicKey,
    read_file,
    supported,
)

SupportedPrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
MAX_SCRYPT_BYTES = 256 << 20
"""cosign asks for 64 MiB; a file must not ask for all the memory there is."""
_COSIGN = re.compile(
    rb"-----BEGIN ENCRYPTED (SIGSTORE|COSIGN) PRIVATE KEY-----([A-Za-z0-9+/=\s]+)"
    rb"-----END ENCRYPTED \1 PRIVATE KEY-----"
)


class _Cost(Struct):
    n: Annotated[int, Meta(ge=2, le=1 << 20)] = named(name="N")
    r: Annotated[int, Meta(ge=1, le=64)]
    p: Annotated[int, Meta(ge=1, le=4)]

    def __post_init__(self) -> None:
        """Refuse what would take all memory (RFC 7914, section 2: 128 * N * r bytes)."""
        if 128 * self.n * self.r > MAX_SCRYPT_BYTES:
            raise ValueError(f"its key derivation wants more than {MAX_SCRYPT_BYTES >> 20} MiB")


class _Derivation(Struct):
    name: Literal["scrypt"]
    params: _Cost
    salt: Annotated[bytes, Meta(max_length=1024)]


class _Cipher(Struct):
    name: Literal["nacl/secretbox"]
    nonce: Annotated[bytes, Meta(min_length=24, max_length=24)]


class _Encrypted(Struct):
    """go-securesystemslib's `encrypted`, which cosign uses: JSON, bytes in base64."""

    kdf: _Derivation
    cipher: _Cipher
    ciphertext: Annotated[bytes, Meta(min_length=16)]
    """A tag of 16 bytes, then the hidden text."""


class _Base64(Struct):
    data: bytes


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key of a kind that we and cosign verify with."""

    key: SupportedPrivateKey = field(repr=False)
    public: PublicKey

    @classmethod
    def ephemeral(cls) -> "PrivateKey":
        """Return a new P-256 key, for one signature under a certificate."""
        return _supported(ec.generate_private_key(ec.SECP256R1()), "a new key")

    def sign(self, data: bytes) -> bytes:
        """Return the signature over `data`: with SHA-256 whatever the curve, as cosign signs and verifies by key."""
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            return self.key.sign(data, ec.ECDSA(hashes.SHA256()))
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        return self.key.sign(data)


class WrongPassword(GKMError):
    """A key does not open with the password that was given; SIGNATURE_INVALID."""


def read(path: str, password: bytes, ask: Callable[[], bytes] | None = None) -> PrivateKey:
    """Return the private key in a file, which is read once; raises as `load` does.

    `ask` is called for another password where the file needs one, and `password` is not it.
    """
    pem, what = read_file(path, "private key", MAX_KEY_BYTES), f"private key {path!r}"
    try:
        return load(pem, password, what)
    except WrongPassword:
        if ask is None:
            raise
    return load(pem, ask(), what)


def load(pem: bytes, password: bytes, what: str) -> PrivateKey:
    """Return the private key in a PEM text; the password of one that has none is not looked at.

    Raises:
        GKMError: SIGNATURE_INVALID; `what` names the key. WrongPassword, where that is known to be why.
    """
    cosign = _COSIGN.search(pem)
    try:
        if cosign:
            key = serialization.load_der_private_key(_decrypted(cosign[2], password, what), None)
        else:
            encrypted = b"ENCRYPTED" in pem
            if encrypted and not password:
                raise _wrong_password(what)
            key = serialization.load_pem_private_key(pem, password if encrypted else None)
    except MALFORMED as error:
        # OpenSSL says of a wrong password what it says of a broken file.
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"{what} cannot be used: it is no PEM private key, or the password is wrong",
            "`cosign generate-key-pair` writes one to cosign.key; its password belongs in COSIGN_PASSWORD",
        ) from error
    return _supported(key, what)


def _decrypted(base64: bytes, password: bytes, what: str) -> bytes:
    # Only a key that cosign encrypted needs NaCl; its import takes 13 ms.
    from nacl.bindings import crypto_secretbox_open  # noqa: PLC0415
    from nacl.exceptions import CryptoError  # noqa: PLC0415

    raw = decode(b'{"data":"%s"}' % b"".join(base64.split()), _Base64, what).data
    file = decode(raw, _Encrypted, what)
    cost = file.kdf.params
    derived = Scrypt(salt=file.kdf.salt, length=32, n=cost.n, r=cost.r, p=cost.p)
    try:
        return crypto_secretbox_open(file.ciphertext, file.cipher.nonce, derived.derive(password))
    except CryptoError as error:
        raise _wrong_password(what) from error


def _supported(key: object, what: str) -> PrivateKey:
    if isinstance(key, SupportedPrivateKey) and (public := supported(key.public_key())):
        return PrivateKey(key, public)
    raise GKMError(
        Reason.SIGNATURE_INVALID,
        f"{what} is of a kind that nobody would trust",
        f"use ECDSA P-256, P-384 or P-521, Ed25519, or RSA of {MIN_RSA_BITS} to {MAX_RSA_BITS} bits",
    )


def _wrong_password(what: str) -> WrongPassword:
    return WrongPassword(
        Reason.SIGNATURE_INVALID,
        f"{what} does not open with the password that was given",
        "put its password into COSIGN_PASSWORD",
    )
