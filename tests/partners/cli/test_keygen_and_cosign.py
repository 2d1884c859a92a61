"""The real cosign 2 and 3 sign with a key pair of `gkm keygen`, and verify with it."""

import json
import os
from pathlib import Path

import pytest
from support.cli.command import CACHE, gkm
from support.peers import require
from support.registry.olareg import Olareg
from support.sigstore.cosign import PLAIN, Cosign


@pytest.mark.parametrize("command", ["cosign", "cosign2"])
def test_cosign_signs_and_verifies_with_the_pair(olareg: Olareg, tmp_path: Path, command: str) -> None:
    require.peer(command)
    cosign = Cosign.create(tmp_path / "cosign", command)
    for path in (cosign.private_key, cosign.public_key):
        path.unlink()
    environment = {**os.environ, "COSIGN_PASSWORD": os.environ.get("COSIGN_PASSWORD", "")}
    made = gkm("keygen", "--output-key-prefix", cosign.directory / "cosign", env=environment)
    assert made.returncode == 0, made.stderr
    ref = f"{olareg.host}/keygen/{command}:1"
    done = gkm("cache", "build", CACHE, "--image", ref, "--push", "--plain-http", "-o", "json")
    image = f"{ref.rpartition(':')[0]}@{json.loads(done.stdout)['digest']}"

    cosign.sign_legacy(image)
    if command == "cosign":
        cosign.sign(image)

    assert gkm("cache", "verify", image, "--key", cosign.public_key, "--plain-http").returncode == 0
    who = ("--key", str(cosign.public_key), "--insecure-ignore-tlog=true", "--trusted-root", str(cosign.trusted_root))
    cosign.run("verify", *who, *PLAIN, image)
