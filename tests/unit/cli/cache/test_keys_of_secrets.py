"""`--key k8s://NAMESPACE/NAME` takes a key from a Secret, as cosign does, to sign and verify; no part of it is told."""

import base64
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gkm.images.signing.keys import PrivateKey, encrypted
from support.cli.command import gkm
from support.kube import kubeconfigs
from support.kube.raw_server import Answer, RawServer, response

PASSWORD = "words-of-the-secret"
SECRET = "k8s://team/signing"
PATH = "/api/v1/namespaces/team/secrets/signing"


@dataclass
class Place:
    """An API server with one Secret, and the environment of a person who can read it."""

    directory: Path
    data: dict[str, bytes] = field(default_factory=dict)
    status: str = "200 OK"
    asked: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)

    def answer(self, head: str) -> Answer:
        path = head.split(" ", 2)[1]
        self.asked.append(path)
        if path != PATH:
            return response("200 OK", b'{"metadata": {"name": "kube-system"}}')
        if not self.status.startswith("200"):
            return response(self.status, json.dumps({"kind": "Status", "message": f"secrets: {self.status}"}).encode())
        data = {name: base64.b64encode(value).decode() for name, value in self.data.items()}
        return response("200 OK", json.dumps({"metadata": {"name": "signing"}, "data": data}).encode())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    key = PrivateKey.new()
    (tmp_path / "team.key").write_bytes(encrypted(key, PASSWORD.encode(), scrypt_n=2))
    (tmp_path / "team.pub").write_bytes(key.public.pem)
    parts = {"cosign.key": "team.key", "cosign.pub": "team.pub"}
    found = Place(tmp_path, {name: (tmp_path / file).read_bytes() for name, file in parts.items()})
    found.data["cosign.password"] = PASSWORD.encode()
    with RawServer.start(found.answer) as server:
        path = kubeconfigs.write(tmp_path / "config", server.url, {"token": "t"})
        found.environment = {**os.environ, "KUBECONFIG": str(path), "COSIGN_PASSWORD": "another-one"}
        yield found


def test_a_signature_by_a_key_of_a_secret_verifies_by_it(image: str, place: Place) -> None:
    for command in ("sign", "verify"):
        done = gkm("cache", command, image, "--key", SECRET, "--plain-http", "-v", env=dict(place.environment))
        assert done.returncode == 0, done.stderr
        assert PATH in done.stderr, "the request is logged"
        assert not [text for text in (PASSWORD, "PRIVATE KEY") if text in done.stderr + done.stdout]
    by_file = gkm("cache", "verify", image, "--key", place.directory / "team.pub", "--plain-http")
    assert by_file.returncode == 0


def test_without_a_password_in_the_secret_it_is_that_of_cosigns_variable(image: str, place: Place) -> None:
    del place.data["cosign.password"]
    words = ("cache", "sign", image, "--key", SECRET, "--plain-http")
    assert gkm(*words, env={**place.environment, "COSIGN_PASSWORD": PASSWORD}).returncode == 0
    refused = gkm(*words, env=dict(place.environment))
    assert (refused.returncode, refused.stderr.startswith(f"error: private key {SECRET}")) == (1, True), refused


@pytest.mark.parametrize(
    ("command", "changes", "expected"),
    [
        ("sign", {"cosign.key": b""}, "k8s://team/signing has no usable cosign.key"),
        ("sign", {"cosign.key": b"x" * (1 << 20)}, "k8s://team/signing has no usable cosign.key"),
        ("sign", {"cosign.key": b"no key"}, "private key k8s://team/signing cannot be used"),
        ("sign", {"cosign.password": b"wrong"}, "private key k8s://team/signing"),
        ("verify", {"cosign.pub": b""}, "k8s://team/signing has no usable cosign.pub"),
        ("verify", {"cosign.pub": b"\xff\x00"}, "public key"),
    ],
)
def test_a_secret_without_a_usable_key_is_named(
    image: str, place: Place, command: str, changes: dict[str, bytes], expected: str
) -> None:
    place.data |= changes
    done = gkm("cache", command, image, "--key", SECRET, "--plain-http", env=dict(place.environment))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert expected in done.stderr
    assert PASSWORD not in done.stderr


@pytest.mark.parametrize("status", ["403 Forbidden", "404 Not Found", "500 Internal Server Error"])
@pytest.mark.parametrize("command", ["sign", "verify"])
def test_a_secret_that_cannot_be_read_is_one_line(image: str, place: Place, command: str, status: str) -> None:
    place.status = status
    done = gkm("cache", command, image, "--key", SECRET, "--plain-http", env=dict(place.environment))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"error: Secret team/signing cannot be read: secrets: {status}; ")
    assert "kubectl get secret signing -n team" in done.stderr


@pytest.mark.parametrize(
    "key",
    ["k8s://", "k8s://team", "k8s://team/", "k8s:///signing", "k8s://Team/a", "k8s://team/a/b", "k8s://team/../a"],
)
def test_a_name_that_no_secret_has_is_wrong_usage(image: str, place: Place, key: str) -> None:
    done = gkm("cache", "verify", image, "--key", key, "--plain-http", env=dict(place.environment))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "write k8s://NAMESPACE/NAME" in done.stderr
    assert place.asked == []


def test_a_file_and_a_variable_need_no_cluster(image: str, place: Place) -> None:
    words = ("cache", "sign", image, "--key", place.directory / "team.key", "--plain-http")
    assert gkm(*words, env={**place.environment, "COSIGN_PASSWORD": PASSWORD}).returncode == 0
    assert place.asked == []
