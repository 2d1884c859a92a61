"""Real olareg holds the image, real cosign signs it; ours resolves, verifies, describes and fetches it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gkm.api.config import Policy, Verification
from gkm.api.errors import Reason
from gkm.hoststate.layout import Layout
from gkm.images import cache
from gkm.images.local_image import LocalImage
from gkm.images.pulling import pull
from gkm.images.reference import Reference
from gkm.images.registries import push
from gkm.images.registries.registry import Registry
from gkm.images.signatures.verify import Verifier
from support.registry.clients import plain_client
from support.registry.olareg import Olareg
from support.sigstore.cosign import Cosign
from support.sigstore.key_signatures import SigningKey


@pytest.fixture
def client(olareg: Olareg) -> Registry:
    return plain_client(olareg.host)


def pushed(client: Registry, olareg: Olareg, image: LocalImage, repository: str) -> Reference:
    ref = Reference.parse(f"{olareg.host}/{repository}:1")
    return ref.pinned(push.image(client, ref, image))


def by(key: Path) -> Verifier:
    return Verifier(Verification(policies=[Policy(keys=[str(key)])]))


def test_what_cosign_signs_today_is_verified(
    client: Registry, olareg: Olareg, cosign: Cosign, built: LocalImage
) -> None:
    ref = pushed(client, olareg, built, "bundle")
    cosign.sign(str(ref))
    verdict = by(cosign.public_key).verify(client, ref, "team")
    assert (verdict.verified, [finding.form for finding in verdict.findings]) == (True, ["bundle-v0.3"])


def test_what_cosign_signed_before_bundles_is_verified(
    client: Registry, olareg: Olareg, cosign: Cosign, built: LocalImage
) -> None:
    ref = pushed(client, olareg, built, "legacy")
    cosign.sign_legacy(str(ref))
    verdict = by(cosign.public_key).verify(client, ref, "team")
    assert (verdict.verified, [finding.form for finding in verdict.findings]) == (True, ["legacy"])


def test_a_signature_of_cosign_by_another_key_is_refused(
    client: Registry, olareg: Olareg, cosign: Cosign, built: LocalImage, tmp_path: Path
) -> None:
    ref = pushed(client, olareg, built, "other-key")
    cosign.sign(str(ref))
    other = tmp_path / "other.pub"
    other.write_bytes(SigningKey().public_pem)
    verdict = by(other).verify(client, ref, "team")
    assert (verdict.verified, verdict.reason) == (False, Reason.SIGNATURE_INVALID)


def test_an_image_is_fetched_from_a_real_registry(
    client: Registry, olareg: Olareg, built: LocalImage, layout: Layout
) -> None:
    ref = pushed(client, olareg, built, "fetch")
    made = pull.fetch(client, cache.describe(client, ref), layout, max_bytes=1 << 30)
    assert made.size_bytes == int(built.labels["cache.triton.image/cache-size-bytes"])


def test_the_command_line_says_whose_signature_counts(
    client: Registry, olareg: Olareg, cosign: Cosign, built: LocalImage, tmp_path: Path
) -> None:
    ref = pushed(client, olareg, built, "command-line")
    cosign.sign(str(ref))
    other = tmp_path / "other.pub"
    other.write_bytes(SigningKey().public_pem)
    answers = []
    for key in (cosign.public_key, other):
        command = [sys.executable, "-m", "gkm_cli.main", "cache", "verify", str(ref), "--key", str(key)]
        done = subprocess.run([*command, "--plain-http", "-o", "json"], capture_output=True, timeout=60, check=False)
        answers.append((done.returncode, json.loads(done.stdout)["verified"]))
    assert answers == [(0, True), (3, False)]
