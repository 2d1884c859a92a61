"""gkm prompts for a password only if the key has one: a CI job with a terminal would wait forever."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from support.images.signers import PASSWORD, pem

SECONDS = 30.0
MAIN = [sys.executable, "-m", "gkm_cli.main"]


def sign_on_terminal(image: str, key: Path, typed: bytes = b"") -> tuple[int, str]:
    """Sign with a terminal as standard input; return exit code and output. The command must not wait for input."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "COSIGN_PASSWORD"}
    with subprocess.Popen(
        [*MAIN, "cache", "sign", image, "--key", str(key)],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    ) as run:
        clock = Timer(SECONDS, run.kill)
        clock.start()
        assert run.stdout is not None
        output = b""
        while part := os.read(run.stdout.fileno(), 1 << 16):
            output += part
            if typed and output.endswith(b": "):  # input before the prompt is discarded
                os.write(ours, typed + b"\n")
        clock.cancel()
        os.close(ours)
        os.close(theirs)
    assert run.returncode >= 0, "it waited for a person"
    return run.returncode, output.decode()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "cosign.key"


@pytest.mark.parametrize("traditional", [True, False])
def test_a_key_without_a_password_is_used_at_once(image: str, key: Path, *, traditional: bool) -> None:
    key.write_bytes(pem(ec.generate_private_key(ec.SECP256R1()), traditional=traditional))
    code, output = sign_on_terminal(image, key)
    assert (code, "password" in output, "signed" in output) == (0, False, True)


def test_a_key_that_is_none_is_an_error_and_no_question(image: str, key: Path) -> None:
    key.write_bytes(b"no key")
    code, output = sign_on_terminal(image, key)
    assert (code, "password of" in output, "cannot be used" in output) == (1, False, True)


@pytest.mark.parametrize("traditional", [True, False])
def test_a_key_with_a_password_is_opened_with_the_typed_password(image: str, key: Path, *, traditional: bool) -> None:
    key.write_bytes(pem(ec.generate_private_key(ec.SECP256R1()), password=PASSWORD, traditional=traditional))
    code, output = sign_on_terminal(image, key, PASSWORD)
    assert (code, "password of" in output, "signed" in output) == (0, True, True)
    assert PASSWORD.decode() not in output
    code, output = sign_on_terminal(image, key, b"wrong")
    assert (code, "the password is wrong" in output) == (1, True)
