"""`gkm cache sign` and `verify`: signers, required signers, and the result."""

import json
import os
from pathlib import Path

import pytest
from support.cli.command import KEY, gkm
from support.images.signers import private_key
from support.registry.push import Target
from support.registry.server import Registry
from support.sigstore.http_services import SigstoreServer, token
from support.sigstore.key_signatures import sign_bundle, sign_legacy
from support.sigstore.keyless import Person
from support.sigstore.services import Sigstore

ALICE = Person()


@pytest.fixture
def signed(registry_server: Registry, image: str) -> str:
    sign_bundle(Target(registry_server.host, "team/vector-add"), image.partition("@")[2], KEY)
    return image


def test_the_result_names_the_signature_that_matched(signed: str, key: Path) -> None:
    result = json.loads(gkm("cache", "verify", signed, "--key", key, "--plain-http", "-o", "json").stdout)
    (found,) = result["signatures"]
    assert result["verified"] is True
    assert result["matched"] == {"policy": 0, "form": "bundle-v0.3", "identity": found["keyid"]}
    assert (found["ok"], found["form"], result["digest"]) == (True, "bundle-v0.3", signed.partition("@")[2])


def test_a_policy_file_names_the_required_signers(signed: str, key: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"policies:\n- keys: [{key}]\n  images: ['*']\n")
    assert gkm("cache", "verify", signed, "--policy", policy, "--plain-http").returncode == 0
    policy.write_text(f"policies:\n- keys: [{key}]\n  images: ['other.example/*']\n")
    refused = gkm("cache", "verify", signed, "--policy", policy, "--plain-http")
    assert (refused.returncode, "no verification policy covers" in refused.stdout) == (3, True)


def test_switched_off_is_not_verified(signed: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("mode: off\n")
    done = gkm("cache", "verify", signed, "--policy", policy, "--plain-http", "-o", "json")
    assert done.returncode == 3
    result = json.loads(done.stdout)
    assert (result["verified"], result["matched"]) == (False, None)
    assert "switched off" in result["message"]


def test_gkm_verifies_its_own_signatures(image: str, tmp_path: Path) -> None:
    private = private_key()
    (tmp_path / "cosign.key").write_bytes(private_pem(private))
    (tmp_path / "cosign.pub").write_bytes(private.public.pem)
    done = gkm("cache", "sign", image, "--key", tmp_path / "cosign.key", "--plain-http", "-o", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["digest"] == image.partition("@")[2]
    assert set(result["signature"]["stored"]) == {"legacy", "bundle-v0.3"}
    assert gkm("cache", "verify", image, "--key", tmp_path / "cosign.pub", "--plain-http").returncode == 0
    done = gkm("cache", "verify", image, "--key", other_key(tmp_path), "--plain-http")
    assert (done.returncode, "it was not made by a trusted key" in done.stdout) == (3, True), done


def private_pem(key: object) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 -- for this alone

    return key.key.private_bytes(  # type: ignore[attr-defined, no-any-return]
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def other_key(directory: Path) -> Path:
    path = directory / "other.pub"
    path.write_bytes(private_key("ed25519").public.pem)
    return path


def test_a_person_signs_with_a_token_and_is_known_by_name(image: str, tmp_path: Path) -> None:
    with SigstoreServer.start(Sigstore()) as server:
        root = server.sigstore.write_trusted_root(tmp_path)
        (tmp_path / "token").write_text(token(ALICE))
        services = ["--fulcio-url", server.url, "--rekor-url", server.url, "--trusted-root", root]
        signed = gkm("cache", "sign", image, "--identity-token", tmp_path / "token", *services, "--plain-http")
        assert signed.returncode == 0, signed.stderr
    who = ["--issuer", ALICE.issuer, "--trusted-root", root, "--plain-http"]
    done = gkm("cache", "verify", image, "--identity", ".*@example\\.test", *who, "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["matched"]["identity"] == ALICE.subject
    stranger = gkm("cache", "verify", image, "--identity", "bob@example\\.test", *who)
    assert (stranger.returncode, "does not name" in stranger.stdout) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["sign", "x.example/a:1", "--key", "k", "--identity-token", "t"], 2, "exclude each other"),
        (["sign", "x.example/a:1", "--key", "/nowhere"], 1, "/nowhere"),
        (["sign", "x.example/a:1", "--key", "k", "--fulcio-url", "https://f"], 2, "no effect"),
        (["sign", "x.example/a:1", "--identity-token", "/nowhere"], 1, "/nowhere"),
        # A wrong configuration costs no token: the file of the token is not read.
        (["sign", "x.example/a:1", "--identity-token", "/t", "--trusted-root", "/r", "--config", "/no"], 1, "/no"),
        (["verify", "x.example/a:1", "--identity", "a@b"], 2, "--identity and --issuer belong together"),
        (["verify", "x.example/a:1", "--key", "k", "--policy", "/nowhere"], 2, "use one of them"),
        (["verify", "x.example/a:1", "--policy", "p", "--trusted-root", "r"], 2, "a policy names its own"),
        (["verify", "x.example/a:1", "--key", "/nowhere"], 1, "/nowhere"),
        (["verify", "x.example/a:1", "--policy", "/nowhere"], 1, "No such file"),
        (["verify", "x.example/a:1", "--policy", __file__], 1, "verification"),
        (
            ["verify", "x.example/a:1", "--identity", "(", "--issuer", "https://c", "--trusted-root", "r"],
            2,
            "error: --identity",
        ),
    ],
)
def test_contradictory_options_are_errors_of_one_line(arguments: list[str], code: int, words: str) -> None:
    done = gkm("cache", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("key", ["/nowhere/cosign.pub", __file__])
def test_a_policy_with_an_unreadable_key_is_a_usage_error(signed: str, key: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"policies:\n- keys: [{key}]\n")
    for command in (["verify", signed], ["extract", signed, "--to", tmp_path / "out"]):
        done = gkm("cache", *command, "--policy", policy, "--plain-http")
        assert (done.returncode, done.stdout) == (2, "")
        assert key in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_policy_for_a_namespace_is_for_that_namespace(signed: str, key: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"policies:\n- keys: [{key}]\n  namespaces: [ml-apps]\n")
    verify = ["cache", "verify", signed, "--policy", policy, "--plain-http"]
    assert [gkm(*verify, *where).returncode for where in ([], ["-n", "ml-apps"], ["-n", "other"])] == [3, 0, 3]


def test_a_form_that_the_registry_refuses_is_a_warning(
    registry_server: Registry, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "cosign.key"
    private.write_bytes(private_pem(private_key()))
    sign_legacy(Target(registry_server.host, "team/vector-add"), image.partition("@")[2], KEY)
    monkeypatch.setattr(registry_server.routes, "refusal_to_change", 400)
    done = gkm("cache", "sign", image, "--key", private, "--plain-http", "-o", "json")
    assert done.returncode == 0
    signature = json.loads(done.stdout)["signature"]
    assert (list(signature["stored"]), list(signature["missing"])) == (["bundle-v0.3"], ["legacy"])
    assert done.stderr == f"warning: no legacy signature is stored: {signature['missing']['legacy']}\n"
    assert f"{image.partition('@')[2].replace(':', '-')}.sig, which exists" in done.stderr


def test_signatures_are_in_the_repository_of_cosigns_variable(
    registry_server: Registry, image: str, tmp_path: Path
) -> None:
    private, public = tmp_path / "cosign.key", tmp_path / "cosign.pub"
    key = private_key()
    private.write_bytes(private_pem(key))
    public.write_bytes(key.public.pem)
    elsewhere = {**os.environ, "COSIGN_REPOSITORY": f"{registry_server.host}/team/elsewhere"}
    signed = gkm("cache", "sign", image, "--key", private, "--plain-http", "-o", "json", env=elsewhere)
    stored = json.loads(signed.stdout)["signature"]["stored"]
    assert all(each.startswith(f"{registry_server.host}/team/elsewhere") for each in stored.values())
    verify = ("cache", "verify", image, "--key", public, "--plain-http")
    assert gkm(*verify, env=elsewhere).returncode == 0
    refused = gkm(*verify)
    assert (refused.returncode, "no signature was found" in refused.stdout) == (3, True), refused


def test_a_variable_that_names_no_repository_is_a_usage_error(image: str, key: Path) -> None:
    environment = {**os.environ, "COSIGN_REPOSITORY": "registry.example/team/signatures:tag"}
    done = gkm("cache", "verify", image, "--key", key, "--plain-http", env=environment)
    assert done.returncode == 2
    assert "COSIGN_REPOSITORY is no repository" in done.stderr
