import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from gkm.api.errors import GKMError, Reason
from gkm.images.signatures import keys
from gkm.images.signing import keys as signing_keys
from gkm.images.signing.keys import SupportedPrivateKey
from support.images.signers import KINDS, PASSWORD, pem

DATA = b"what is signed"


def refused(text: bytes, password: bytes = b"") -> str:
    with pytest.raises(GKMError) as caught:
        signing_keys.load(text, password, "private key 'k'")
    assert caught.value.reason in (Reason.SIGNATURE_INVALID, Reason.METADATA_INVALID)
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("password", [b"", PASSWORD])
def test_a_key_of_every_kind_signs_what_its_public_half_verifies(kind: str, password: bytes) -> None:
    key = signing_keys.load(pem(KINDS[kind](), password=password), password, "key")
    public = keys.load(key.public.pem.decode())
    assert public.verifies(key.sign(DATA), DATA)
    assert not public.verifies(key.sign(DATA), DATA + b".")


@pytest.mark.parametrize("kind", ["p256", "p384", "rsa2048"])
@pytest.mark.parametrize("password", [b"", PASSWORD])
def test_the_older_forms_of_openssl_are_read(kind: str, password: bytes) -> None:
    text = pem(KINDS[kind](), password=password, traditional=True)
    assert b"EC PRIVATE KEY" in text or b"RSA PRIVATE KEY" in text
    key = signing_keys.load(text, password, "key")
    assert key.public.verifies(key.sign(DATA), DATA)


def test_a_password_for_an_unencrypted_key_is_ignored() -> None:
    assert signing_keys.load(pem(KINDS["p256"]()), PASSWORD, "key").sign(DATA)


@pytest.mark.parametrize("password", [b"", b"wrong"])
def test_a_wrong_password_is_refused_and_not_repeated(password: bytes) -> None:
    message = refused(pem(KINDS["p256"](), password=PASSWORD), password)
    assert "password" in message
    assert "wrong'" not in message
    assert PASSWORD.decode() not in message


@pytest.mark.parametrize(
    "make",
    [
        lambda: rsa.generate_private_key(65537, 1024),  # noqa: S505 -- the weakness is the point
        lambda: ec.generate_private_key(ec.SECP256K1()),
        lambda: dsa.generate_private_key(1024),  # noqa: S505 -- of any size; one of 2048 bits takes half a second
    ],
    ids=["short rsa", "bitcoin's curve", "dsa"],
)
def test_a_key_that_no_verifier_trusts_is_refused(make: Callable[[], SupportedPrivateKey]) -> None:
    assert "no verifier trusts" in refused(pem(make()))


@pytest.mark.parametrize("text", [b"", b"\0" * 99, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_text_without_a_key_is_refused(text: bytes) -> None:
    assert "no PEM private key" in refused(text)


def test_a_public_key_is_refused() -> None:
    key = signing_keys.load(pem(KINDS["p256"]()), b"", "key")
    assert "no PEM private key" in refused(key.public.pem)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(GKMError, match=r"nowhere\.key.*cannot be read"):
        signing_keys.read(str(tmp_path / "nowhere.key"), b"")


def test_a_key_does_not_show_itself() -> None:
    key = signing_keys.load(pem(KINDS["p256"]()), b"", "key")
    assert "EllipticCurvePrivateKey" not in repr(key)


def cosign_file(label: str = "SIGSTORE", **changes: object) -> bytes:
    document = {
        "kdf": {
            "name": "scrypt",
            "params": {"N": 1024, "r": 8, "p": 1},
            "salt": base64.b64encode(b"s" * 32).decode(),
        },
        "cipher": {"name": "nacl/secretbox", "nonce": base64.b64encode(b"n" * 24).decode()},
        "ciphertext": base64.b64encode(b"c" * 99).decode(),
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        part: Any = document
        for parent in parents:
            part = part[parent]
        part[last] = value
    body = base64.b64encode(json.dumps(document).encode()).decode()
    return (
        f"-----BEGIN ENCRYPTED {label} PRIVATE KEY-----\n{body}\n-----END ENCRYPTED {label} PRIVATE KEY-----\n".encode()
    )


@pytest.mark.parametrize("label", ["SIGSTORE", "COSIGN"])
def test_an_encrypted_key_with_other_content_means_a_wrong_password(label: str) -> None:
    assert "does not open" in refused(cosign_file(label), PASSWORD)


@pytest.mark.parametrize(
    "changes",
    [
        {"kdf__params": {"N": 1 << 20, "r": 64, "p": 1}},
        {"kdf__params": {"N": 1 << 40, "r": 8, "p": 1}},
        {"kdf__params": {"N": 1024, "r": 8, "p": 1 << 20}},
        {"kdf__params": {"N": 1000, "r": 8, "p": 1}},
        {"kdf__params": {"N": -1, "r": 8, "p": 1}},
        {"kdf__params": {}},
        {"kdf__name": "none"},
        {"kdf__salt": "*"},
        {"cipher__name": "none"},
        {"cipher__nonce": "AAAA"},
        {"cipher": None},
        {"ciphertext": ""},
        {"ciphertext": 7},
    ],
    ids=str,
)
def test_an_encrypted_key_with_impossible_parameters_is_refused(changes: dict[str, Any]) -> None:
    assert "private key 'k'" in refused(cosign_file(**changes), PASSWORD)


def test_labels_that_do_not_match_are_no_key() -> None:
    text = cosign_file().replace(b"END ENCRYPTED SIGSTORE", b"END ENCRYPTED COSIGN")
    assert "cannot be used" in refused(text, PASSWORD)
