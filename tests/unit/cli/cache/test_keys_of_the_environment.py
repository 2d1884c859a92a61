"""`--key env://VARIABLE` takes a key from the environment, as cosign does, to sign and to verify."""

import os

import pytest
from gkm.images.signing.keys import PrivateKey, encrypted
from support.cli.command import gkm
from support.registry.server import Registry

PASSWORD = "words"


@pytest.fixture
def variables() -> dict[str, str]:
    """The environment with a key pair, and the password of the private one."""
    key = PrivateKey.new()
    pair = {"PRIVATE": encrypted(key, PASSWORD.encode(), scrypt_n=2).decode(), "PUBLIC": key.public.pem.decode()}
    return {**os.environ, "COSIGN_PASSWORD": PASSWORD, **pair}


def test_a_signature_by_such_a_key_verifies_by_such_a_key(
    registry_server: Registry, image: str, variables: dict[str, str]
) -> None:
    signed = gkm("cache", "sign", image, "--key", "env://PRIVATE", "--plain-http", env=variables)
    assert (signed.returncode, signed.stderr) == (0, "")
    done = gkm("cache", "verify", image, "--key", "env://PUBLIC", "--plain-http", env=variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert registry_server.host in image


@pytest.mark.parametrize(
    ("command", "changes", "expected"),
    [
        ("sign", {"PRIVATE": ""}, (2, "env://PRIVATE names a variable that is not set")),
        ("verify", {"PRIVATE": ""}, (2, "env://PRIVATE names a variable that is not set")),
        ("sign", {"COSIGN_PASSWORD": "other"}, (1, "private key env://PRIVATE")),
        ("sign", {"PRIVATE": "no key"}, (1, "private key env://PRIVATE cannot be used")),
    ],
)
def test_a_variable_that_holds_no_usable_key_is_named(
    image: str, variables: dict[str, str], command: str, changes: dict[str, str], expected: tuple[int, str]
) -> None:
    code, words = expected
    done = gkm("cache", command, image, "--key", "env://PRIVATE", "--plain-http", env=variables | changes)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "BEGIN" not in done.stderr
