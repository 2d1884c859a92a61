"""`gkm cache build --provenance`, `attest`, and `verify` with required attestations."""

import json
import re
from pathlib import Path

import pytest
from support.cli.command import CACHE, gkm
from support.images.signers import pem, private_key
from support.registry.server import Registry

PROVENANCE = "https://slsa.dev/provenance/v1"
BUILDER = "https://ci.test/builder"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """A private key, and its public key."""
    private = private_key()
    paths = tmp_path / "cosign.key", tmp_path / "cosign.pub"
    paths[0].write_bytes(pem(private.key))
    paths[1].write_bytes(private.public.pem)
    return paths


@pytest.fixture
def built(registry_server: Registry, tmp_path: Path) -> tuple[str, Path]:
    """An image with its provenance."""
    provenance = tmp_path / "provenance.json"
    image = f"{registry_server.host}/team/attested:1"
    words = ("--image", image, "--push", "--plain-http")
    versions = ("--dependency-version", "cuda=12.9", "--dependency-version", "triton=3.5.1+ours")
    done = gkm(
        "cache", "build", CACHE, *words, *versions, "--provenance", provenance, "--builder", BUILDER, "-o", "json"
    )
    assert done.returncode == 0, done.stderr
    return f"{image.rpartition(':')[0]}@{json.loads(done.stdout)['digest']}", provenance


def signed(image: str, key: Path) -> str:
    done = gkm("cache", "sign", image, "--key", key, "--plain-http")
    assert done.returncode == 0, done.stderr
    return image


def verify(image: str, key: Path, *words: str) -> tuple[int, str]:
    done = gkm("cache", "verify", image, "--key", key, "--plain-http", *words)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, done.stdout


def test_the_provenance_names_image_builder_dependencies_and_times(built: tuple[str, Path]) -> None:
    image, file = built
    statement = json.loads(file.read_text())
    assert (statement["_type"], statement["predicateType"]) == ("https://in-toto.io/Statement/v1", PROVENANCE)
    name, _, digest = image.partition("@sha256:")
    assert statement["subject"] == [{"name": name, "digest": {"sha256": digest}}]
    definition, details = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    assert definition["buildType"] == "https://gkm.io/cache/v1"
    assert definition["externalParameters"] == {"image": f"{name}:1", "gpus": []}
    uris = [each["uri"] for each in definition["resolvedDependencies"]]
    assert uris == ["pkg:generic/cuda@12.9", "pkg:pypi/triton@3.5.1%2Bours"]
    assert details["builder"]["id"] == BUILDER
    started, finished = details["metadata"]["startedOn"], details["metadata"]["finishedOn"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", started)
    assert started <= finished
    assert str(CACHE) not in file.read_text()


def test_an_attested_image_is_verified_and_a_rule_decides(built: tuple[str, Path], keys: tuple[Path, Path]) -> None:
    image, file = built
    private, public = keys
    signed(image, private)
    code, text = verify(image, public, "--attestation", PROVENANCE)
    assert (code, f"needs an attestation {PROVENANCE}" in text) == (3, True)
    done = gkm("cache", "attest", image, file, "--key", private, "--plain-http", "-o", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["predicateType"], result["digest"]) == (PROVENANCE, image.partition("@")[2])
    rule = f"predicate.runDetails.builder.id == '{BUILDER}'"
    code, text = verify(image, public, "--attestation", PROVENANCE, "--rule", rule, "-o", "json")
    (found,) = json.loads(text)["attestations"]
    assert (code, found["predicateType"], found["ok"]) == (0, PROVENANCE, True)
    code, text = verify(image, public, "--attestation", PROVENANCE, "--rule", "predicate.runDetails.builder.id == 'x'")
    assert (code, "is false" in text) == (3, True)


def test_a_policy_file_requires_attestations(built: tuple[str, Path], keys: tuple[Path, Path], tmp_path: Path) -> None:
    image, file = built
    private, public = keys
    signed(image, private)
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        f"policies:\n- keys: [{public}]\n  attestations:\n  - predicateType: {PROVENANCE}\n"
        "    rules: [{expression: has(predicate.runDetails), message: it is complete}]\n"
    )
    words = ("cache", "verify", image, "--policy", policy, "--plain-http")
    done = gkm(*words)
    assert (done.returncode, f"needs an attestation {PROVENANCE}" in done.stdout) == (3, True), done
    assert gkm("cache", "attest", image, file, "--key", private, "--plain-http").returncode == 0
    done = gkm(*words)
    assert (done.returncode, PROVENANCE in done.stdout) == (0, True)


def test_a_predicate_needs_its_type(built: tuple[str, Path], keys: tuple[Path, Path], tmp_path: Path) -> None:
    image, _ = built
    private, public = keys
    signed(image, private)
    sbom = tmp_path / "sbom.json"
    sbom.write_text('{"spdxVersion": "SPDX-2.3"}')
    words = ("cache", "attest", image, sbom, "--key", private, "--plain-http")
    refused = gkm(*words)
    assert (refused.returncode, "name it with --type" in refused.stderr) == (2, True)
    assert gkm(*words, "--type", "https://spdx.dev/Document").returncode == 0
    rule = "predicate.spdxVersion == 'SPDX-2.3'"
    assert verify(image, public, "--attestation", "https://spdx.dev/Document", "--rule", rule)[0] == 0


def test_a_statement_about_another_image_is_not_attached(
    built: tuple[str, Path], keys: tuple[Path, Path], image: str
) -> None:
    refused = gkm("cache", "attest", image, built[1], "--key", keys[0], "--plain-http")
    assert (refused.returncode, "is a statement about another image" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--type", "https://other.test/v1"), "leave --type out"),
        (("--identity-token", "/nothing"), "exclude each other"),
    ],
)
def test_contradictions_of_attest_are_refused(
    built: tuple[str, Path], keys: tuple[Path, Path], words: tuple[str, ...], said: str
) -> None:
    refused = gkm("cache", "attest", *map(str, built), "--key", keys[0], "--plain-http", *words)
    assert (refused.returncode, said in refused.stderr) == (2, True)


@pytest.mark.parametrize("content", ["{", "[1", '{"_type": "https://in-toto.io/Statement/v1", "subject": 1}', ""])
def test_a_file_that_is_no_json_is_refused(
    built: tuple[str, Path], keys: tuple[Path, Path], tmp_path: Path, content: str
) -> None:
    file = tmp_path / "it"
    file.write_text(content)
    refused = gkm("cache", "attest", built[0], file, "--key", keys[0], "--plain-http", "--type", PROVENANCE)
    assert (refused.returncode, "it cannot be read" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--key", "KEY", "--rule", "true"), "--rule is for --attestation"),
        (("--key", "KEY", "--attestation", "spdx", "--rule", "predicate."), "line 1, column"),
        (("--key", "KEY", "--attestation", "https://sigstore.dev/cosign/sign/v1"), "a signature's type"),
        (("--policy", "FILE", "--attestation", "x"), "a policy names its own"),
        (
            ("--key", "KEY", *(word for number in range(9) for word in ("--attestation", f"https://t.test/{number}"))),
            "at most 8",
        ),
    ],
)
def test_contradictions_of_verify_are_refused(keys: tuple[Path, Path], words: tuple[str, ...], said: str) -> None:
    given = [str(keys[1]) if word == "KEY" else word for word in words]
    refused = gkm("cache", "verify", "registry.test/x:1", *given)
    assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr


def test_contradictions_of_build_are_refused(tmp_path: Path) -> None:
    words = ("cache", "build", CACHE, "--image", "registry.test/x:1", "--to", f"oci:{tmp_path / 'x'}")
    assert "--builder is for --provenance" in gkm(*words, "--builder", "x").stderr
    (tmp_path / "there").write_text("")
    refused = gkm(*words, "--provenance", tmp_path / "there")
    assert (refused.returncode, "exists already" in refused.stderr) == (2, True)


@pytest.mark.parametrize("name", ["slsaprovenance1", PROVENANCE])
def test_a_type_has_the_short_name_of_cosign(built: tuple[str, Path], keys: tuple[Path, Path], name: str) -> None:
    image = signed(built[0], keys[0])
    attested = gkm("cache", "attest", image, built[1], "--key", keys[0], "--plain-http", "--type", name)
    assert attested.returncode == 0, attested.stderr
    code, shown = verify(image, keys[1], "--attestation", name)
    assert (code, shown.splitlines()[0].startswith("verified: ")) == (0, True)
    code, shown = verify(image, keys[1], "--attestation", "spdxjson")
    assert code == 3
    assert f"no such attestation was found; the image has {PROVENANCE}" in shown


@pytest.mark.parametrize("command", ["verify", "attest"])
def test_a_name_that_is_no_type_is_a_mistake_of_usage(
    built: tuple[str, Path], keys: tuple[Path, Path], command: str
) -> None:
    words = {
        "verify": ("cache", "verify", built[0], "--key", keys[1], "--attestation", "slsaprovenanc1"),
        "attest": ("cache", "attest", built[0], built[1], "--key", keys[0], "--type", "slsaprovenanc1"),
    }
    done = gkm(*words[command], "--plain-http")
    assert done.returncode == 2
    assert "slsaprovenanc1 is no URI and no short name; the short names are custom, " in done.stderr
