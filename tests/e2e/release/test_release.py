"""A release as its maintainer makes it: a version, its commit, `release.py build`, and the images in a registry."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.peers import require
from support.product_images import build as product_images
from support.registry.olareg import Olareg
from support.sigstore.cosign import PLAIN, Cosign, CosignFailed

# Its images share all layers below our own wheel with those of the other tests.
pytestmark = [pytest.mark.heavy, pytest.mark.images, pytest.mark.timeout(900)]
ROOT = product_images.ROOT
VERSION = "9.8.7"
SLSA, SPDX = "https://slsa.dev/provenance/v1", "https://spdx.dev/Document/v2.3"


class Clone:
    """A clone of what is committed, with the environment of this one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.release = directory / "dist" / "release"
        subprocess.run(["git", "clone", "--quiet", "--local", str(ROOT), str(directory)], check=True)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {"PYTHONPATH": "tests", "COSIGN_PASSWORD": ""}
        return subprocess.run(
            [sys.executable, "scripts/release.py", *words],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def ok(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def commit(self) -> str:
        author = ("-c", "user.name=test", "-c", "user.email=test@example.test")
        subprocess.run(["git", *author, "commit", "--quiet", "-am", VERSION], cwd=self.directory, check=True)
        words = ["git", "rev-parse", "HEAD"]
        return subprocess.run(words, cwd=self.directory, capture_output=True, text=True, check=True).stdout.strip()

    def images(self) -> dict[str, dict[str, Any]]:
        """Return image name to index."""
        found = {}
        for path in (self.release / "images").iterdir():
            (entry,) = json.loads((path / "index.json").read_bytes())["manifests"]
            blob = path / "blobs" / "sha256" / entry["digest"].removeprefix("sha256:")
            found[path.name] = json.loads(blob.read_bytes()) | {"digest": entry["digest"]}
        return found


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    require.peer("helm")
    with require.absences():
        product_images.check()
    directory = tmp_path_factory.mktemp("release") / "clone"
    yield Clone(directory)
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def revision(clone: Clone) -> str:
    """Make the release; return its commit."""
    refused = clone.run("build", VERSION, "--base", "local")
    assert refused.returncode == 1
    assert f"run 'make version VERSION={VERSION}'" in refused.stderr
    clone.ok("version", VERSION)
    refused = clone.run("build", VERSION, "--base", "local")
    assert "not committed" in refused.stderr
    made = clone.commit()
    assert "complete, and all of it agrees" in clone.ok("build", VERSION, "--base", "local")
    return made


def test_a_release_is_complete_and_of_its_commit(clone: Clone, revision: str) -> None:
    done = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=clone.release, check=False)
    assert done.returncode == 0
    assert clone.images().keys() == {"gkm-agent", "gkm-csi", "gkm-operator"}
    for name in clone.images():
        statement = json.loads((clone.release / "provenance" / f"{name}.intoto.json").read_bytes())
        assert statement["predicate"]["buildDefinition"]["externalParameters"]["revision"] == revision
    assert "helm" in (clone.release / "CHANGELOG.md").read_text().lower()


def test_published_images_are_signed_and_attested_for_cosign_and_for_gkm(
    clone: Clone, revision: str, cosign: Cosign, tmp_path: Path
) -> None:
    assert revision
    require.peer("olareg")
    with Olareg.start(tmp_path) as olareg:
        team = f"{olareg.host}/team"
        publish = ("publish", VERSION, "--registry", team, "--key", str(cosign.private_key), "--plain-http")
        assert "is of a trial: its base is another one" in clone.run(*publish).stderr
        clone.ok(*publish, "--trial")
        for name, index in clone.images().items():
            pinned = f"{team}/{name}@{index['digest']}"
            cosign.verify(pinned)
            cosign.verify(pinned, legacy=True)
            attested(cosign, pinned, SLSA)
            (image,) = index["manifests"]
            document = attested(cosign, f"{team}/{name}@{image['digest']}", SPDX)
            assert document["packages"][0]["checksums"][0]["checksumValue"] == image["digest"].removeprefix("sha256:")
            with pytest.raises(CosignFailed, match="none of the attestations matched the predicate type"):
                attested(cosign, pinned, SPDX)
            gkm = [str(Path(sys.executable).with_name("gkm")), "cache", "verify", f"{team}/{name}:{VERSION}"]
            gkm += ["--key", str(cosign.public_key), "--plain-http"]
            done = subprocess.run(gkm, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr


def attested(cosign: Cosign, image: str, kind: str) -> dict[str, Any]:
    """Return the predicate of this type, verified by cosign."""
    options = ("--insecure-ignore-tlog=true", "--trusted-root", str(cosign.trusted_root), *PLAIN)
    printed = cosign.run("verify-attestation", "--key", str(cosign.public_key), "--type", kind, *options, image)
    (line,) = [line for line in printed.splitlines() if line.startswith("{")]
    statement: dict[str, Any] = json.loads(base64.b64decode(json.loads(line)["payload"]))
    assert statement["predicateType"] == kind
    found: dict[str, Any] = statement["predicate"]
    return found
