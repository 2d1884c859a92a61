"""The command line and the real cosign 2 and 3: each verifies the signatures of the other."""

import json

import pytest
from support.cli.command import CACHE, gkm
from support.peers import require
from support.registry.olareg import Olareg
from support.sigstore.cosign import PLAIN, Cosign


@pytest.fixture(scope="module", params=["cosign", "cosign2"])
def signer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cosign:
    require.peer(request.param)
    return Cosign.create(tmp_path_factory.mktemp(request.param), request.param)


def pushed(olareg: Olareg, name: str) -> str:
    ref = f"{olareg.host}/cli/{name}:1"
    done = gkm("cache", "build", CACHE, "--image", ref, "--push", "--plain-http", "-o", "json")
    assert done.returncode == 0, done.stderr
    return f"{olareg.host}/cli/{name}@{json.loads(done.stdout)['digest']}"


def test_cosign_verifies_signatures_of_gkm(olareg: Olareg, signer: Cosign) -> None:
    image = pushed(olareg, f"ours-{signer.command}")
    done = gkm("cache", "sign", image, "--key", signer.private_key, "--plain-http")
    assert done.returncode == 0, done.stderr
    who = ("--key", str(signer.public_key), "--insecure-ignore-tlog=true", "--trusted-root", str(signer.trusted_root))
    (accepted,) = json.loads(signer.run("verify", *who, *PLAIN, image))
    assert accepted["critical"]["image"]["docker-manifest-digest"] == image.partition("@")[2]


@pytest.mark.parametrize("legacy", [True, False])
def test_gkm_verifies_signatures_of_cosign(olareg: Olareg, signer: Cosign, *, legacy: bool) -> None:
    image = pushed(olareg, f"theirs-{signer.command}-{legacy}".lower())
    if legacy:
        signer.sign_legacy(image)
    elif signer.command == "cosign":
        signer.sign(image)
    else:
        signer.run(
            "sign", "--key", str(signer.private_key), "--new-bundle-format=true", "--tlog-upload=false",
            "--signing-config", str(signer.signing_config), "--allow-http-registry", "--yes", image,
        )  # fmt: skip
    done = gkm("cache", "verify", image, "--key", signer.public_key, "--plain-http", "-o", "json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["matched"]["form"] == ("legacy" if legacy else "bundle-v0.3")
