"""A key pair that the real cosign made in a Secret of a real API server: gkm signs and verifies with it, as cosign."""

import json
import os
from pathlib import Path

from support.cli.command import CACHE, gkm
from support.cluster.cluster import Cluster
from support.peers import require
from support.registry.olareg import Olareg
from support.sigstore.cosign import PLAIN, Cosign

KEY = "k8s://default/team-signing"


def test_gkm_and_cosign_take_the_key_from_the_secret(gkm_cluster: Cluster, olareg: Olareg, tmp_path: Path) -> None:
    require.peer("cosign")
    cosign = Cosign.create(tmp_path / "cosign", "cosign")
    cluster = {"KUBECONFIG": str(gkm_cluster.kubeconfig)}
    cosign.run("generate-key-pair", KEY, environment={**cluster, "COSIGN_PASSWORD": "of-a-test"})
    ref = f"{olareg.host}/secret/llama:1"
    built = gkm("cache", "build", CACHE, "--image", ref, "--push", "--plain-http", "-o", "json")
    image = f"{ref.rpartition(':')[0]}@{json.loads(built.stdout)['digest']}"
    for command in ("sign", "verify"):
        done = gkm("cache", command, image, "--key", KEY, "--plain-http", env={**os.environ, **cluster})
        assert done.returncode == 0, done.stderr
    who = ("--key", KEY, "--insecure-ignore-tlog=true", "--trusted-root", str(cosign.trusted_root))
    cosign.run("verify", *who, *PLAIN, image, environment=cluster)
