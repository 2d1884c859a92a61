"""`gkm keygen`: the pair signs and verifies with gkm. tests/partners/cli/test_keygen_and_cosign.py has cosign."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from gkm.api.errors import GKMError
from gkm.images.signatures import keys as public_keys
from gkm.images.signing import keys
from support.cli.command import gkm
from support.host.waiting import scaled

WORDS = [sys.executable, "-m", "gkm_cli.main", "keygen"]


PASSWORD = "pässword"


def made(directory: Path, password: str = PASSWORD) -> Path:
    environment = {**os.environ, "COSIGN_PASSWORD": password}
    done = gkm("keygen", "--output-key-prefix", directory / "team", "-o", "json", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["publicKey"] == str(directory / "team.pub")
    return directory / "team.key"


@pytest.mark.parametrize("password", ["pässword", ""])
def test_the_private_key_opens_with_its_password_and_belongs_to_the_public_one(tmp_path: Path, password: str) -> None:
    path = made(tmp_path, password)
    private = keys.read(str(path), password.encode())
    public = public_keys.load(str(tmp_path / "team.pub"))
    assert public.verifies(private.sign(b"data"), b"data")
    assert (path.stat().st_mode & 0o777, (tmp_path / "team.pub").stat().st_mode & 0o777) == (0o600, 0o644)
    with pytest.raises(keys.WrongPassword):
        keys.read(str(path), b"another")


def test_two_keys_share_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert made(tmp_path / "a").read_bytes() != made(tmp_path / "b").read_bytes()


def test_a_signature_by_the_pair_counts(image: str, tmp_path: Path) -> None:
    path = made(tmp_path)
    environment = {**os.environ, "COSIGN_PASSWORD": "pässword"}
    assert gkm("cache", "sign", image, "--key", path, "--plain-http", env=environment).returncode == 0
    assert gkm("cache", "verify", image, "--key", tmp_path / "team.pub", "--plain-http").returncode == 0


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = made(tmp_path)
    before = path.read_bytes()
    done = gkm("keygen", "--output-key-prefix", tmp_path / "team", env={**os.environ, "COSIGN_PASSWORD": "x"})
    assert (done.returncode, "exists already" in done.stderr, path.read_bytes()) == (2, True, before)


def test_a_full_disk_leaves_no_part_of_a_key(tmp_path: Path) -> None:
    words = ["prlimit", "--fsize=100", *WORDS, "--output-key-prefix", str(tmp_path / "team")]
    environment = {**os.environ, "COSIGN_PASSWORD": PASSWORD, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=scaled(60), check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"{tmp_path}/team.key: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_a_terminal_and_a_password_there_is_no_key(tmp_path: Path) -> None:
    others = {name: value for name, value in os.environ.items() if name != "COSIGN_PASSWORD"}
    done = gkm("keygen", "--output-key-prefix", tmp_path / "team", env=others)
    assert (done.returncode, done.stderr.count("\n"), list(tmp_path.iterdir())) == (2, 1, [])
    assert "COSIGN_PASSWORD" in done.stderr


@pytest.mark.parametrize(("second", "code"), [("secret", 0), ("another", 2)])
def test_on_a_terminal_the_password_is_typed_twice_and_not_shown(tmp_path: Path, second: str, code: int) -> None:
    others = {name: value for name, value in os.environ.items() if name != "COSIGN_PASSWORD"}
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*WORDS, "--output-key-prefix", str(tmp_path / "team")],
        stdin=child,
        stdout=child,
        stderr=child,
        env=others,
        start_new_session=True,
    )
    os.close(child)
    shown = b""
    for question, answer in ((b"private key: ", "secret"), (b"again: ", second)):
        while question not in shown:
            shown += os.read(parent, 4096)
        os.write(parent, f"{answer}\n".encode())
    try:
        while part := os.read(parent, 4096):
            shown += part
    except OSError:
        pass  # the end of a terminal
    assert process.wait(scaled(60)) == code
    assert b"secret" not in shown
    assert (b"the two passwords differ" in shown, code) in ((False, 0), (True, 2))
    assert (tmp_path / "team.key").exists() == (code == 0)


@pytest.mark.parametrize("uri", ["awskms:///alias/key", "gcpkms://projects/p", "hashivault://key"])
@pytest.mark.parametrize("command", ["sign", "verify"])
def test_keys_in_a_service_are_refused_with_a_sentence(image: str, uri: str, command: str) -> None:
    done = gkm("cache", command, image, "--key", uri, "--plain-http")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "is in a key management service" in done.stderr
    assert "name a file" in done.stderr


@pytest.mark.parametrize(
    "uri",
    [
        "pkcs11:token=t;object=o?pin-value=1234",
        "PKCS11:object=o?pin-value=1234",
        " pkcs11:object=o?pin-value=1234",
        "engine:pkcs11:object=o?pin-value=1234",
        "https://user:1234@keys.example/key.pub",
    ],
)
def test_no_message_has_a_pin(uri: str) -> None:
    for load in (public_keys.load, lambda key: keys.read(key, b"")):
        with pytest.raises(GKMError) as refused:
            load(uri)
        assert "1234" not in f"{refused.value.message} {refused.value.hint} {refused.value.detail}"


def test_a_file_with_a_colon_in_its_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path)
    (tmp_path / "team:prod").write_bytes(path.with_suffix(".pub").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert public_keys.load("team:prod").key_id == public_keys.load("team.pub").key_id


def test_a_policy_with_such_a_key_says_so_too() -> None:
    with pytest.raises(GKMError, match="which GKM cannot use"):
        public_keys.load("awskms:///alias/key")
