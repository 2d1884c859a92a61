"""Private keys for signing: encrypted keys of cosign, or PEM of OpenSSL (PKCS#8, SEC 1, PKCS#1).

This module never logs or shows a key or a password; an error names only the file.
"""

import base64
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from msgspec import Meta, Struct

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
"""Limit of memory in bytes for scrypt: cosign uses 64 MiB, and a crafted file must not use all memory."""
PASSWORD_VARIABLE = "COSIGN_PASSWORD"  # noqa: S105 -- the name of the variable that cosign reads
_LABEL = b"ENCRYPTED SIGSTORE PRIVATE KEY"
_COSIGN = re.compile(
    rb"-----BEGIN ENCRYPTED (SIGSTORE|COSIGN) PRIVATE KEY-----([A-Za-z0-9+/=\s]+)"
    rb"-----END ENCRYPTED \1 PRIVATE KEY-----"
)


class _Cost(Struct, rename={"n": "N"}):
    n: Annotated[int, Meta(ge=2, le=1 << 20)]
    r: Annotated[int, Meta(ge=1, le=64)]
    p: Annotated[int, Meta(ge=1, le=4)]

    def __post_init__(self) -> None:
        """Refuse parameters that need too much memory (RFC 7914, section 2: 128 * N * r bytes)."""
        if 128 * self.n * self.r > MAX_SCRYPT_BYTES:
            raise ValueError(f"its key derivation would take more than {MAX_SCRYPT_BYTES >> 20} MiB of memory")


class _Derivation(Struct):
    name: Literal["scrypt"]
    params: _Cost
    salt: Annotated[bytes, Meta(max_length=1024)]


class _Cipher(Struct):
    name: Literal["nacl/secretbox"]
    nonce: Annotated[bytes, Meta(min_length=24, max_length=24)]


class _Encrypted(Struct):
    """The encrypted form of go-securesystemslib, which cosign uses: JSON with base64."""

    kdf: _Derivation
    cipher: _Cipher
    ciphertext: Annotated[bytes, Meta(min_length=16)]
    """A tag of 16 bytes, then the encrypted key."""


SCRYPT_N = 1 << 16
"""The cost of go-securesystemslib for new keys: 64 MiB and some 0.2 s."""


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A private key that cosign and GKM support."""

    key: SupportedPrivateKey = field(repr=False)
    public: PublicKey

    @classmethod
    def new(cls) -> "PrivateKey":
        """Generate a private key on the curve P-256."""
        return _supported(ec.generate_private_key(ec.SECP256R1()), "a new key")

    def sign(self, data: bytes) -> bytes:
        """Return the key's signature over `data`, with SHA-256 for every curve, as cosign does."""
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            return self.key.sign(data, ec.ECDSA(hashes.SHA256()))
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        return self.key.sign(data)


class WrongPassword(GKMError):
    """The password does not decrypt the key; the reason is SIGNATURE_INVALID."""


def read(path: str, password: bytes, ask: Callable[[], bytes] | None = None) -> PrivateKey:
    """Read the private key in a file; raises as `load` does.

    If `password` does not decrypt the key, try the password that `ask` returns. The file is read once.
    """
    return unlocked(read_file(path, "private key", MAX_KEY_BYTES), f"private key {path!r}", password, ask)


def unlocked(pem: bytes, what: str, password: bytes, ask: Callable[[], bytes] | None = None) -> PrivateKey:
    """Read the private key in a PEM text; `password` and `ask` as for `read`; raises as `load` does."""
    try:
        return load(pem, password, what)
    except WrongPassword:
        if ask is None:
            raise
    return load(pem, ask(), what)


def load(pem: bytes, password: bytes, what: str) -> PrivateKey:
    """Decode the private key in a PEM text; the password is ignored if the key is not encrypted.

    Raises:
        WrongPassword: the key is encrypted, and the password is wrong.
        GKMError: SIGNATURE_INVALID; `what` names the key.
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
        # OpenSSL raises the same error for a wrong password and for a damaged file.
        raise GKMError(
            Reason.SIGNATURE_INVALID,
            f"{what} cannot be used: it is no PEM private key, or the password is wrong",
            f"`gkm keygen` writes one to cosign.key; its password belongs in {PASSWORD_VARIABLE}",
        ) from error
    return _supported(key, what)


def _decrypted(text: bytes, password: bytes, what: str) -> bytes:
    # Only a key that cosign encrypted needs NaCl; its import takes 13 ms.
    from nacl.bindings import crypto_secretbox_open  # noqa: PLC0415
    from nacl.exceptions import CryptoError  # noqa: PLC0415

    raw = decode(b'"%s"' % b"".join(text.split()), bytes, what)
    file = decode(raw, _Encrypted, what)
    cost = file.kdf.params
    derived = Scrypt(salt=file.kdf.salt, length=32, n=cost.n, r=cost.r, p=cost.p)
    try:
        return crypto_secretbox_open(file.ciphertext, file.cipher.nonce, derived.derive(password))
    except CryptoError as error:
        raise _wrong_password(what) from error


def encrypted(key: PrivateKey, password: bytes, scrypt_n: int = SCRYPT_N) -> bytes:
    """Encrypt a private key in cosign's format, which cosign 2 and 3 and `load` read.

    Only `load` reads a key with another `scrypt_n`, the cost of each attempt to guess the password.
    """
    from nacl.bindings import crypto_secretbox  # noqa: PLC0415 -- as above

    plain = key.key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    salt, nonce = os.urandom(32), os.urandom(24)
    cost = _Cost(scrypt_n, 8, 1)
    derived = Scrypt(salt=salt, length=32, n=cost.n, r=cost.r, p=cost.p).derive(password)
    derivation, cipher = _Derivation("scrypt", cost, salt), _Cipher("nacl/secretbox", nonce)
    file = msgspec.json.encode(_Encrypted(derivation, cipher, crypto_secretbox(plain, nonce, derived)))
    return b"-----BEGIN %s-----\n%s-----END %s-----\n" % (_LABEL, base64.encodebytes(file), _LABEL)


def _supported(key: object, what: str) -> PrivateKey:
    if isinstance(key, SupportedPrivateKey) and (public := supported(key.public_key())):
        return PrivateKey(key, public)
    raise GKMError(
        Reason.SIGNATURE_INVALID,
        f"{what} is of a kind that no verifier trusts",
        f"use ECDSA P-256, P-384 or P-521, Ed25519, or RSA of {MIN_RSA_BITS} to {MAX_RSA_BITS} bits",
    )


def _wrong_password(what: str) -> WrongPassword:
    return WrongPassword(
        Reason.SIGNATURE_INVALID,
        f"{what} does not open with the password that was given",
        f"put its password into {PASSWORD_VARIABLE}",
    )
