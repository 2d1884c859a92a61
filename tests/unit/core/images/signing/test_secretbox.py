"""Private keys in NaCl's secretbox, as cosign encrypts them: scrypt of the password, XSalsa20 and Poly1305."""

import base64
import hashlib
import json

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from gkm.api.errors import GKMError
from gkm.images.signing import keys
from gkm.images.signing.keys import PrivateKey, WrongPassword
from nacl.secret import SecretBox
from support.images.signers import KINDS, PASSWORD

SALT, NONCE = b"s" * 32, b"n" * 24
KEY = KINDS["p256"]()
DER = KEY.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
DERIVED = hashlib.scrypt(PASSWORD, salt=SALT, n=1024, r=8, p=1, dklen=32)
BOX = SecretBox(DERIVED).encrypt(DER, NONCE).ciphertext


def opened(box: bytes, nonce: bytes = NONCE, password: bytes = PASSWORD) -> PrivateKey:
    document = {
        "kdf": {"name": "scrypt", "params": {"N": 1024, "r": 8, "p": 1}, "salt": base64.b64encode(SALT).decode()},
        "cipher": {"name": "nacl/secretbox", "nonce": base64.b64encode(nonce).decode()},
        "ciphertext": base64.b64encode(box).decode(),
    }
    body = base64.b64encode(json.dumps(document).encode()).decode()
    label = "ENCRYPTED SIGSTORE PRIVATE KEY"
    return keys.load(f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n".encode(), password, "key")


def test_the_password_opens_the_key() -> None:
    assert opened(BOX).public.verifies(opened(BOX).sign(b"data"), b"data")
    assert opened(BOX).key.public_key() == KEY.public_key()


@pytest.mark.parametrize("position", [0, 15, 16, -1])
def test_a_box_with_one_bit_changed_stays_shut(position: int) -> None:
    changed = bytearray(BOX)
    changed[position] ^= 1
    with pytest.raises(WrongPassword):
        opened(bytes(changed))


def test_another_password_or_nonce_opens_nothing() -> None:
    with pytest.raises(WrongPassword):
        opened(BOX, password=b"another")
    with pytest.raises(WrongPassword):
        opened(BOX, nonce=bytes(24))


@pytest.mark.parametrize(
    ("nonce", "box"),
    [(NONCE[1:], BOX), (NONCE + b"n", BOX), (NONCE, BOX[:15]), (NONCE, b"")],
    ids=["short nonce", "long nonce", "short box", "empty box"],  # a box differs in each process
)
def test_impossible_lengths_are_refused_as_a_malformed_key(nonce: bytes, box: bytes) -> None:
    with pytest.raises(GKMError, match="length") as caught:
        opened(box, nonce)
    assert not isinstance(caught.value, WrongPassword)
