"""Private keys of every accepted kind, as the content of files."""

from collections.abc import Callable

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from gkm.images.signing import keys
from gkm.images.signing.keys import PrivateKey, SupportedPrivateKey

PASSWORD = b"correct horse"
KINDS: dict[str, Callable[[], SupportedPrivateKey]] = {
    "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "p521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "rsa2048": lambda: rsa.generate_private_key(65537, 2048),
    "rsa4096": lambda: rsa.generate_private_key(65537, 4096),
    "ed25519": ed25519.Ed25519PrivateKey.generate,
}


def pem(key: SupportedPrivateKey, *, password: bytes = b"", traditional: bool = False) -> bytes:
    """Return a key as OpenSSL writes it: PKCS#8, or the older form of its kind (SEC 1, PKCS#1)."""
    form = serialization.PrivateFormat.TraditionalOpenSSL if traditional else serialization.PrivateFormat.PKCS8
    lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, lock)


def private_key(kind: str = "p256") -> PrivateKey:
    return keys.load(pem(KINDS[kind]()), b"", "a test's key")
