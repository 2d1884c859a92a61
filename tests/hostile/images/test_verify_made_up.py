"""Any bytes in place of signatures end in a verdict: corpora of the fuzzers, and mutations."""

import json
import random
from pathlib import Path

import pytest
from gkm.api.config import Identity, Policy, Verification
from gkm.images.signatures.verify import Verdict, Verifier
from support.images.cache_registry import Site
from support.registry import faults
from support.registry.push import Target
from support.sigstore.key_signatures import SIGNATURE_ANNOTATION, SigningKey, payload_of, push_bundle, push_legacy
from support.sigstore.keyless import Person, Service
from support.sigstore.services import Sigstore

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
SEEDS = [
    path
    for name in ("signature", "keyless", "manifest", "log-entry", "checkpoint", "trusted-root")
    for path in sorted((CORPUS / name).iterdir())
]
KEY, ALICE = SigningKey(), Person()
TAG = r"manifests/sha256-[0-9a-f]{64}\.sig"


def verdict(site: Site, root: Path) -> Verdict:
    named = Identity(ALICE.issuer, ALICE.subject)
    policy = Policy([KEY.public_pem.decode()], identities=[named], trusted_root=str(root), tlog="required")
    return Verifier(Verification(policies=[policy])).verify(site.client, site.ref, "team")


def target(site: Site) -> Target:
    return Target(site.real.host, site.ref.repository)


@pytest.fixture(scope="module")
def sigstore() -> Sigstore:
    return Sigstore()


@pytest.fixture
def root(sigstore: Sigstore, tmp_path: Path) -> Path:
    return sigstore.write_trusted_root(tmp_path)


def attach_raw(site: Site, bundle: bytes) -> None:
    """Attach arbitrary bytes as a bundle."""
    place = target(site)
    _, image = place.get(f"manifests/{site.ref.target}")
    kind = "application/vnd.dev.sigstore.bundle.v0.3+json"
    subject = {"mediaType": site.image.media_type, "size": len(image), "digest": site.ref.target}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": kind,
        "config": place.blob(b"{}"),
        "layers": [place.blob(bundle, kind)],
        "subject": subject,
    }
    place.manifest(manifest)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_seed_of_the_fuzzers_is_no_signature_in_any_position(site: Site, root: Path, seed: Path) -> None:
    data = seed.read_bytes()
    text = data.decode("latin-1")
    annotations = {
        SIGNATURE_ANNOTATION: "AA==",
        "dev.sigstore.cosign/certificate": text,
        "dev.sigstore.cosign/bundle": text,
    }
    push_legacy(target(site), site.ref.target, data, {SIGNATURE_ANNOTATION: "AA=="})
    attach_raw(site, data)
    assert verdict(site, root).verified is False
    push_legacy(target(site), site.ref.target, payload_of(target(site), site.ref.target), annotations)
    assert verdict(site, root).verified is False
    for path in (TAG, "referrers/"):
        site.real.misbehave(faults.tampered(path, lambda _: data))
        assert verdict(site, root).verified is False


@pytest.mark.parametrize("log", [1, 2])
@pytest.mark.parametrize("by", [KEY, ALICE], ids=["key", "person"])
def test_bundles_that_were_mutated_get_a_verdict(
    site: Site, root: Path, sigstore: Sigstore, log: int, by: SigningKey | Person
) -> None:
    chance = random.Random(log)
    good = json.dumps(Service(sigstore, log).bundle(site.ref.target, by)).encode()
    for _ in range(60):
        attach_raw(site, _mutated(good, chance))
    assert len(verdict(site, root).findings) == 60


@pytest.mark.parametrize("by", [KEY, ALICE], ids=["key", "person"])
def test_annotations_that_were_mutated_get_a_verdict(
    site: Site, root: Path, sigstore: Sigstore, by: SigningKey | Person
) -> None:
    chance = random.Random(1)
    payload, annotations = Service(sigstore, 1).legacy(payload_of(target(site), site.ref.target), by)
    for _ in range(60):
        name = chance.choice(sorted(annotations))
        changed = _mutated(annotations[name].encode(), chance).decode("latin-1")
        push_legacy(target(site), site.ref.target, payload, {**annotations, name: changed})
        assert len(verdict(site, root).findings) == 1


def _mutated(data: bytes, chance: random.Random) -> bytes:
    """Return `data` with some bytes changed, removed or doubled; the result is often still JSON."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        place = chance.randrange(len(changed))
        length = chance.choice((1, 1, 1, 8, 40))
        match chance.randrange(4):
            case 0:
                changed[place] = chance.choice(b'0123456789abcdefABCDEF+/="{}[]:,-\\\x00\xff')
            case 1:
                del changed[place : place + length]
            case 2:
                changed[place:place] = changed[place : place + length]
            case _:
                changed[place] ^= 1 << chance.randrange(8)
    return bytes(changed) or b"{"


def test_the_unmutated_input_is_a_signature(site: Site, root: Path, sigstore: Sigstore) -> None:
    push_bundle(target(site), site.ref.target, Service(sigstore, 1).bundle(site.ref.target, ALICE))
    assert verdict(site, root).verified is True
